"""A scheme: what clients send, how it is protected, what the server does with it. Eight schemes have names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from lowkey import checks
from lowkey.analytics import Question, asked_of
from lowkey.codec import CODECS, DECODERS, operator_of
from lowkey.errors import InvalidInput
from lowkey.federation.rules import with_rate
from lowkey.privacy import ClientMechanism, ClientPrivacy, NoPrivacy, Privacy, Terms, WireFormat, make_sampling
from lowkey.protocols import Codec, Decoder, ModelShape, Operator, PublicNumbers
from lowkey.registry import Registry, describe
from lowkey.secagg import Session
from lowkey.server import AVERAGES, GATHERS, OPTIMISERS, Averaging, Gather, Optimiser, Plain
from lowkey.types import ClientId


class Family(NamedTuple):
    """The usual parts of a scheme, by their names in the registries.

    ``weighted`` says whether the mean is weighted by data size in schemes without privacy. In private schemes it never
    is: weights would break the bound.
    """

    codec: str
    decoder: str = "adjoint"
    private_decoder: str = "adjoint"
    gather: str = "decode"
    weighted: bool = True


FAMILIES: Registry[Family] = Registry(
    "federation.scheme",
    {
        "fl-std": Family("whole"),
        "fl-rnd": Family("random-subset"),
        "fl-freq": Family("low-pass-dct"),
        "fl-cs": Family("chunked-dct", decoder="layered", gather="error-feedback", weighted=False),
    },
)
SCHEMES = (*FAMILIES, *(f"{name}-dp" for name in FAMILIES))
_PRIVATE = "-dp"
Purpose: TypeAlias = Literal["learn", "centre", "calibrate", "ask"]
PARTS: dict[str, Registry[Any]] = {
    "codec": CODECS, "decoder": DECODERS, "gather": GATHERS, "server": OPTIMISERS, "averaging": AVERAGES,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A way to learn together; :func:`scheme` composes one.

    Attributes
    ----------
    name : str
        One of SCHEMES; it says which parts the scheme has unless others were chosen.
    codec, decoder : Codec, Decoder
        How updates are compressed, and recovered.
    gather, server, averaging : Gather, Optimiser, Averaging
        What the server does in the compressed domain, how it moves the model, and which average it releases.
    privacy : Privacy
        Who takes part, what happens to their vectors, and what a round costs.
    weight_by_examples : bool
        Whether the mean is weighted by data size.
    seed : int
        Names reproducible choices: order of local SGD, public shuffles, cohorts of schemes without privacy.
    layers : tuple of int
        Number of coordinates of each parameter tensor of the model, for decoders that use them.
    start, stop : int, int or None
        Which coordinates of the model its rounds learn; all where nothing is said.
    purpose : {"learn", "centre", "calibrate", "ask"}
        What its rounds are for: to learn, to release the mean features of a model with a centre, to learn how scores
        become risks, or to ask ``question``, whose answer leaves the model as it is.
    question : Question or None
        What clients are asked instead of being trained.
    others : mapping of int to Scheme
        Rounds of another purpose than this one's, with their schemes.
    features : str
        The public feature map that makes the model's inputs, in words with its digest; everybody must have the same.
    """

    name: str
    codec: Codec
    decoder: Decoder
    gather: Gather
    server: Optimiser
    averaging: Averaging
    privacy: Privacy
    weight_by_examples: bool
    seed: int = 0
    layers: tuple[int, ...] = ()
    start: int = 0
    stop: int | None = None
    purpose: Purpose = "learn"
    question: Question | None = None
    others: Mapping[int, Scheme] = field(default_factory=dict, repr=False)
    features: str = ""

    def at(self, number: int) -> Scheme:
        """The scheme of a round; where nothing is learned, there are no rounds but those that ask."""
        if self.purpose == "ask" and self.others and number not in self.others:
            raise InvalidInput(f"round {number} asks nothing that was agreed on, and nothing is learned in this run")
        return self.others.get(number, self)

    @property
    def phases(self) -> dict[int, Scheme]:
        """The different schemes of a run, by the first round of each."""
        found: dict[int, Scheme] = {}
        first = next(number for number in range(1, len(self.others) + 2) if number not in self.others)
        for number in sorted({*self.others, *([first] if self.learns else [])}):
            if all(known is not self.at(number) for known in found.values()):
                found[number] = self.at(number)
        return found

    @property
    def learns(self) -> bool:
        """Whether any round learns: not where all that happens is that questions are asked."""
        return self.purpose == "learn"

    @property
    def evaluated_by_clients(self) -> bool:
        """Whether the model is evaluated on clients' own test rows, in this round or, of a whole run, in any."""
        if self.question is not None:
            return self.question.asks_of == "scores"
        return any(other.evaluated_by_clients for other in self.others.values())

    @property
    def asked(self) -> tuple[int, ...]:
        """The rounds in which a question is asked."""
        return tuple(sorted(number for number, other in self.others.items() if other.purpose == "ask"))

    def learning_number(self, number: int) -> int:
        """The number of a round among those that change the model."""
        return number - sum(asked < number for asked in self.asked)

    @property
    def part(self) -> slice:
        """The coordinates that are learned."""
        return slice(self.start, self.stop)

    @property
    def private(self) -> bool:
        return self.privacy.private

    def operator(self, num_coordinates: int, number: int) -> Operator:
        """The map of a round of this scheme, for a model of this size."""
        num_coordinates = len(range(num_coordinates)[self.part]) if self.question is None else self.question.length
        round_number = number if self.codec.changes_each_round else 0
        public = PublicNumbers(seed=self.seed, round=round_number, bits=self.privacy.bits)
        return operator_of(self.codec, num_coordinates, public)

    def wire(self, num_coordinates: int, number: int = 1) -> WireFormat:
        """What a client's vector looks like on the wire."""
        return self.privacy.wire(self.operator(num_coordinates, number).num_measurements)

    def terms(self, num_coordinates: int, number: int) -> Terms:
        """What all members of a round agree on; only private schemes have terms."""
        privacy, promise, wire = self.privacy, self.privacy.promise(), self.wire(num_coordinates, number)
        if promise is None or wire.bits is None:
            raise InvalidInput(f"{self.name} sends vectors openly; only private schemes are aggregated securely")
        members, shares = privacy.sampling.roster_size, promise.shares
        graph = shares.graph(members)
        return Terms(
            scheme=self.name,
            noise_multiplier=promise.noise_multiplier,
            clip_rule=promise.clip_rule,
            bits=wire.bits,
            length=wire.length,
            members=members,
            min_survivors=shares.min_survivors,
            honest=shares.honest,
            graph=graph.kind,
            failure=graph.failure,
            strays=graph.strays,
            neighbours=graph.neighbours,
            shares_needed=graph.shares_needed,
            delta=promise.delta,
            sampling=privacy.sampling.mode,
            coin=privacy.sampling.coin,
            codec=describe(CODECS.name_of(type(self.codec)), self.codec),
            public_seed=self.seed,
            model_size=num_coordinates,
            question="" if self.question is None else asked_of(self.question),
            unit=promise.unit,
            persons=promise.persons,
            features=self.features,
        )

    @staticmethod
    @lru_cache(maxsize=4)  # members that share a process share it
    def session(run: str, number: int, attempt: int, roster: tuple[ClientId, ...], terms: Terms) -> Session:
        """The secure aggregation of one attempt at a round, as everybody with these terms sets it up."""
        return Session(
            run=run,
            round=number,
            attempt=attempt,
            roster=roster,
            members=terms.members,
            min_survivors=terms.min_survivors,
            colluders=terms.colluders,
            graph=terms.graph,
            neighbours=terms.neighbours,
            shares_needed=terms.shares_needed,
            bits=terms.bits,
            length=terms.length,
            terms=terms.digest(),
        )

    def for_layers(self, layers: Sequence[int]) -> Scheme:
        """The same scheme for a model whose parameter tensors have these sizes, in their natural order."""
        return self.for_model(ModelShape(tuple(layers)))

    def for_model(
        self,
        shape: ModelShape,
        *,
        rounds: int | None = None,
        calibration: int = 0,
        questions: Sequence[Question] = (),
        evaluation: Question | None = None,
        every: int = 0,
    ) -> Scheme:
        """The same scheme for a model of this shape.

        Questions come first. Where the model has a centre, the next round releases the mean features. Where it has
        slope and intercept, the last rounds fit them; all others learn the rest.

        Parameters
        ----------
        shape : ModelShape
            Sizes of the model's parts.
        rounds : int or None
            The number of the last round; needed for calibration.
        calibration : int
            How many rounds, the last ones, fit slope and intercept.
        questions : sequence of Question
            What is asked before the first round that learns.
        evaluation : Question or None
            What is asked of the model at the end, in one more round.
        every : int
            Rounds after which the same is asked meanwhile; 0 asks at the end only.
        """
        settings: ClientPrivacy | None = getattr(self.privacy, "settings", None)
        if rounds == 0 and not questions and evaluation is None:
            raise InvalidInput(
                "schedule.rounds is 0, and nothing is asked; set rounds, or ask something: [[questions]]"
            )
        if settings is not None and rounds != 0 and bool(settings.centring) != bool(shape.centre):
            raise InvalidInput(
                "the model has a centre, which costs a share of the budget: set privacy.centring, such as 0.05"
                if shape.centre
                else f"privacy.centring is {settings.centring}, but the model has no centre; set it to 0"
            )
        learned: dict[int, Scheme] = {}
        if shape.centre:
            opening = self.privacy if settings is None else self._of_everybody(settings.opening())
            learned[1] = self._plain(opening, 0, shape.centre, purpose="centre")
        if calibration and rounds != 0:
            if not shape.calibration:
                raise InvalidInput(
                    f"schedule.calibration is {calibration}, but the model has no slope and intercept; set it to 0, or "
                    "use lowkey.RiskHead"
                )
            if rounds is None or rounds <= calibration + bool(shape.centre):
                raise InvalidInput(
                    f"schedule.calibration is {calibration}; it must leave rounds to learn: set more schedule.rounds"
                )
            closing = self.privacy
            if settings is not None:
                closing = ClientMechanism(settings=settings.calibrating(), sampling=self.privacy.sampling)
            last = self._plain(closing, shape.size - shape.calibration, shape.size, purpose="calibrate")
            learned |= dict.fromkeys(range(rounds - calibration + 1, rounds + 1), last)
        return replace(
            self,
            layers=shape.learned,
            start=shape.centre,
            stop=shape.centre + sum(shape.learned),
            purpose="ask" if rounds == 0 else "learn",
            others=self._with_questions(learned, rounds, questions, evaluation, every),
        )

    def _with_questions(
        self,
        learned: Mapping[int, Scheme],
        rounds: int | None,
        questions: Sequence[Question],
        evaluation: Question | None,
        every: int,
    ) -> dict[int, Scheme]:
        """Rounds of other purposes, those of questions put in between: all later ones move back."""
        found = {number: self._asking(question) for number, question in enumerate(questions, 1)}
        if not found and evaluation is None:
            return dict(learned)
        if rounds is None:
            raise InvalidInput("questions need the number of rounds; set schedule.rounds")
        place, evaluates = len(found), None if evaluation is None else self._asking(evaluation)
        for number in range(1, rounds + 1):
            place += 1
            if number in learned:
                found[place] = learned[number]
            if evaluates is not None and every and number % every == 0 and number < rounds:
                place += 1
                found[place] = evaluates
        if evaluates is not None:
            found[place + 1] = evaluates
        return found

    def _asking(self, question: Question) -> Scheme:
        """A scheme whose rounds ask a question of everybody."""
        settings: ClientPrivacy | None = getattr(self.privacy, "settings", None)
        population = self.privacy.sampling.population
        privacy: Privacy = (
            NoPrivacy(sampling=make_sampling("fixed", population=population, cohort=population))
            if settings is None
            else self._of_everybody(settings.of_question())
        )
        return replace(
            self._plain(privacy, 0, question.length, purpose="ask"),
            question=question,
            weight_by_examples=not self.private,
        )

    def _of_everybody(self, settings: ClientPrivacy) -> ClientMechanism:
        population = self.privacy.sampling.population
        everybody = make_sampling("all", population=population, cohort=population)
        return ClientMechanism(settings=settings, sampling=everybody)

    def _plain(self, privacy: Privacy, start: int, stop: int, *, purpose: Purpose) -> Scheme:
        """A scheme for a few coordinates, whose mean update is simply added."""
        usual = {kind: PARTS[kind][name]() for kind, name in usual_parts("fl-std").items()}
        return replace(
            self,
            **usual,
            privacy=privacy,
            weight_by_examples=False,
            layers=(stop - start,),
            start=start,
            stop=stop,
            purpose=purpose,
        )


def is_private(name: str) -> bool:
    """Whether the scheme of this name promises privacy; unknown names are refused."""
    checks.one_of("federation.scheme", name, (*FAMILIES, *(f"{family}{_PRIVATE}" for family in FAMILIES)))
    return name.endswith(_PRIVATE)


def usual_parts(name: str) -> dict[str, str]:
    """Names of the parts that a scheme has unless others are chosen, by the table in which they are set."""
    private, family = is_private(name), FAMILIES[name.removesuffix(_PRIVATE)]
    decoder = family.private_decoder if private else family.decoder
    return {
        "codec": family.codec, "decoder": decoder, "gather": family.gather, "server": "plain", "averaging": "last",
    }  # fmt: skip


def scheme(
    name: str,
    *,
    clients: int,
    cohort: int,
    codec: Codec | None = None,
    decoder: Decoder | None = None,
    gather: Gather | None = None,
    server: Optimiser | None = None,
    averaging: Averaging | None = None,
    privacy: ClientPrivacy | None = None,
    min_clients: int = 1,
    seed: int = 0,
) -> Scheme:
    """Compose a scheme; parts that are not given are the usual ones of its name.

    Parameters
    ----------
    name : str
        "fl-std", "fl-rnd", "fl-freq", "fl-cs", or one of these with "-dp".
    clients : int
        N, the number of enrolled clients.
    cohort : int
        How many clients are expected to contribute to a round.
    codec, decoder, gather, server, averaging : parts of these kinds
        Such as ``lowkey.ChunkedDCT(ratio=0.05)``, ``lowkey.LassoDecoder()``, ``lowkey.ErrorFeedback(rate=1.0)``,
        ``lowkey.Adam()`` and ``lowkey.TailAverage(start=50)``.
    privacy : ClientPrivacy
        What is promised, in schemes with "-dp". Noise that is not given is calibrated to ``epsilon`` and ``rounds``.
    min_clients : int
        Answers that a round without privacy needs; private schemes set ``privacy.dropouts`` instead.
    seed : int
        Names the public shuffle and subsets, cohorts of schemes without privacy, and the order of local SGD.
    """
    private = is_private(name)
    checks.at_least("seed", seed, 0)
    chosen = dict[str, Any](codec=codec, decoder=decoder, gather=gather, server=server, averaging=averaging)
    parts: dict[str, Any] = {kind: chosen[kind] or PARTS[kind][usual]() for kind, usual in usual_parts(name).items()}
    require_fit(parts)
    mechanism = _mechanism(name, privacy, clients, cohort, min_clients, parts["codec"].ratio)
    if isinstance(parts["server"], Plain):
        settings = mechanism.settings if isinstance(mechanism, ClientMechanism) else None
        rounds = None if settings is None else settings.rounds
        parts["server"] = with_rate(parts["server"], settings, clients=clients, cohort=cohort, rounds=rounds)
    return Scheme(
        name=name,
        **parts,
        privacy=mechanism,
        weight_by_examples=not private and FAMILIES[name].weighted,
        seed=seed,
    )


def _mechanism(
    name: str, privacy: ClientPrivacy | None, clients: int, cohort: int, min_clients: int, ratio: float
) -> Privacy:
    require_promise(name, privacy, min_clients)
    if privacy is None:
        return NoPrivacy(sampling=make_sampling("fixed", population=clients, cohort=cohort), min_survivors=min_clients)
    settings = privacy.resolve(clients=clients, cohort=cohort, ratio=ratio)
    if settings.noise_multiplier == 0:
        raise InvalidInput(
            f"privacy.noise_multiplier is 0, which protects nobody; raise it, or use {name.removesuffix(_PRIVATE)}"
        )
    return ClientMechanism(settings=settings, sampling=settings.sampling_of(clients=clients, cohort=cohort))


def require_promise(name: str, privacy: ClientPrivacy | None, min_clients: int) -> None:
    """Refuse privacy settings that a scheme does not have, or the lack of those that it needs."""
    if not is_private(name) and privacy is not None:
        raise InvalidInput(f"{name} promises no privacy; leave out the privacy settings, or use {name}{_PRIVATE}")
    if is_private(name) and privacy is None:
        raise InvalidInput(
            f"{name} needs privacy settings (the table [privacy]): clip_norm, and epsilon or noise_multiplier"
        )
    if is_private(name) and min_clients != 1:
        raise InvalidInput(f"federation.min_clients is for schemes without privacy; for {name} set privacy.dropouts")


def require_fit(parts: Mapping[str, Any]) -> None:
    """Refuse parts that cannot work together."""
    codec, decoder, gather = parts["codec"], parts["decoder"], parts["gather"]
    kind = CODECS.name_of(type(codec))
    if decoder.needs_blocks and not codec.makes_blocks:
        raise InvalidInput(
            f"decoder.kind is {DECODERS.name_of(type(decoder))!r}, which needs the chunks of 'chunked-dct'; the codec "
            f"{kind!r} takes 'adjoint'"
        )
    if gather.adds_rounds and codec.changes_each_round:
        raise InvalidInput(
            f"gather.kind is {GATHERS.name_of(type(gather))!r}, which adds up measurements of several rounds; those of "
            f"the codec {kind!r} have no common domain: use gather.kind = 'decode'"
        )
