"""Secure aggregation: the server learns the sum of the members' vectors and nothing else about them.

Bonawitz et al. (2017) with double masks, signatures and a consistency round, over a graph of neighbours, fixed or drawn
by each member for itself, as in Bell et al. (2020). All functions are pure and work on records; the caller carries the
messages. (Only the log is told, who sent something false.) One attempt:

====  =====================================  =======================================================
0     ``advertise`` → Advert                 ``accept_adverts`` → adverts, whose ``Links`` say who sees which
1     ``share`` → SealedShares               ``deliver`` → a Delivery for each
2     ``mask`` → masked vector, Masked       ``Tally.add`` as they come, then ``Tally.close``
3     ``confirm`` → Confirmation             ``accept_confirmations`` → confirmations
4     ``reveal`` → Revealed                  ``unmask`` → sum
====  =====================================  =======================================================
"""

from lowkey.secagg.client import MemberState, Stage, advertise, blinding, check_delivery, confirm, mask, reveal, share
from lowkey.secagg.encoding import decode, encode
from lowkey.secagg.keys import Identity, VerifyKeys, is_signed_by
from lowkey.secagg.messages import (
    Advert,
    Confirmation,
    Delivery,
    Masked,
    Revealed,
    SealedShares,
    Voucher,
    example_messages,
    view_digest,
)
from lowkey.secagg.packing import pack, packed_size, unpack
from lowkey.secagg.server import Links, Tally, Unmasked, accept_adverts, accept_confirmations, deliver, unmask
from lowkey.secagg.session import Session

__all__ = [
    "Advert",
    "Confirmation",
    "Delivery",
    "Identity",
    "Links",
    "Masked",
    "MemberState",
    "Revealed",
    "SealedShares",
    "Session",
    "Stage",
    "Tally",
    "Unmasked",
    "VerifyKeys",
    "Voucher",
    "accept_adverts",
    "accept_confirmations",
    "advertise",
    "blinding",
    "check_delivery",
    "confirm",
    "decode",
    "deliver",
    "encode",
    "example_messages",
    "is_signed_by",
    "mask",
    "pack",
    "packed_size",
    "reveal",
    "share",
    "unmask",
    "unpack",
    "view_digest",
]
