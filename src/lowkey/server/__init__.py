"""What the server does with the mean of a round: pure steps on a visible state."""

from lowkey.server.averaging import Averaging
from lowkey.server.error_feedback import ErrorFeedback
from lowkey.server.state import ServerRule, ServerState, ServerStep

__all__ = ["Averaging", "ErrorFeedback", "ServerRule", "ServerState", "ServerStep"]
