"""One end of a TLS connection, driven by the reactor: the handshake, the frames in both directions, and the reason for
its end.

No call blocks. Messages that the peer does not read are queued. Beyond a limit the connection is closed, so that one
peer cannot delay messages to others.
"""

from __future__ import annotations

import enum
import socket
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any

from holdfast.model.noun_base import Noun
from holdfast.untrusted import Malformed
from holdfast.wire.message_frames import LONGEST_MESSAGE_BYTES, FrameReader
from holdfast.wire.peer_identity import SPOKEN, Credentials, Identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.model.events import Event
    from holdfast.reactor import DescriptorWatch, News, Reactor

#: The size of the largest TLS record, in bytes. Reads and writes use it, so that OpenSSL never buffers a part.
RECORD_BYTES = 16_384
#: The most queued bytes that the peer has not read: the longest message, and room for the messages after it.
UNREAD_BYTES = LONGEST_MESSAGE_BYTES + (4 << 20)


class ChannelEndKind(enum.StrEnum):
    """The ways in which a connection can end."""

    #: The peer closed the connection.
    LEFT = "left"
    #: The network or the peer's machine broke the connection.
    BROKEN = "broken"
    #: The peer runs holdfast with another key.
    OTHER_KEY = "other-key"
    #: The peer uses TLS, but is no holdfast.
    NO_KEY = "no-key"
    #: The peer does not use TLS.
    NO_TLS = "no-tls"
    #: The peer has the key, but has sent bytes that are not a message.
    MALFORMED = "malformed"
    #: The peer did not read the messages that were sent to it.
    UNREAD = "unread"
    #: The handshake or the hello did not come in time.
    LATE = "late"
    #: Too many connections had sent no hello, and this one had been silent longest.
    CROWDED = "crowded"
    #: No connection to the host could be made.
    UNREACHED = "unreached"
    #: The host's name could not be resolved.
    UNRESOLVED = "unresolved"


class ChannelEnd(Noun, frozen=True, kw_only=True):
    """Why a connection ended or could not be made. `words`: the reason for the user."""

    why: ChannelEndKind
    words: str


class _State(enum.Enum):
    SHAKING = enum.auto()
    OPEN = enum.auto()
    #: The last messages are being sent. Messages from the peer are dropped.
    LEAVING = enum.auto()
    CLOSED = enum.auto()


class Channel:
    """A TLS connection from its first byte on. Subclasses handle the end of the handshake, each message and the
    disconnect.
    """

    __slots__ = ("_at", "_credentials", "_doom", "_hears", "_inbox", "_out", "_sock", "_state", "_unread", "_watch")

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        credentials: Credentials,
        hears: Mapping[Identity, Any],
        *,
        writable: bool = False,
    ) -> None:
        """Watch the socket and start the handshake.

        sock: a non-blocking socket. The channel closes it.
        credentials: the TLS context of this end.
        hears: maps each identity of a peer to the types of messages that it may send.
        writable: whether the socket is still connecting.
        """
        self._credentials = credentials
        self._hears = hears
        self._inbox: FrameReader | None = None
        self._out: deque[bytes] = deque()
        #: How many bytes of the first frame in the queue have been sent.
        self._at = 0
        self._unread = 0
        self._doom: ChannelEnd | None = None
        self._state = _State.SHAKING
        self._sock = sock
        self._watch: DescriptorWatch = reactor.watch(sock.fileno(), self._ready, writable=writable)

    def _opened(self, identity: Identity, now: float) -> News:
        """Called after the handshake, so the peer has the job's key."""
        raise AssertionError("said by the subclass")

    def _on_message(self, message: Any, now: float) -> News:
        raise AssertionError("said by the subclass")

    def _ended(self, end: ChannelEnd, now: float) -> News:
        """Called after the connection's end, except after `close`."""
        raise AssertionError("said by the subclass")

    @property
    def open(self) -> bool:
        """Whether a message can be sent."""
        return self._state is _State.OPEN and self._doom is None

    @property
    def fd(self) -> int:
        """The file descriptor of the connection."""
        return self._watch.fd

    @property
    def closed(self) -> bool:
        return self._state is _State.CLOSED

    @property
    def held(self) -> int:
        """The number of stored bytes that belong to an incomplete message."""
        return self._inbox.held if self._inbox is not None else 0

    def pause(self) -> None:
        """Stop reading until `resume`. The peer's bytes wait in the kernel's buffers."""
        self._watch.read_too(False)

    def resume(self) -> None:
        self._watch.read_too(True)

    def put(self, framed: bytes) -> bool:
        """Send a frame, or queue it after earlier frames. Return False if the connection has ended."""
        if not self.open:
            return False
        if self._unread + len(framed) > UNREAD_BYTES:
            self.doom(ChannelEnd(why=ChannelEndKind.UNREAD, words=f"it has left {self._unread} bytes unread"))
            return False
        waits = bool(self._out)
        self._out.append(framed)
        self._unread += len(framed)
        if not waits:
            self._flush()
        return True

    def leave(self) -> None:
        """Stop sending after all frames are sent. `_ended` is called after the peer has closed its end."""
        if self.open:
            self._state = _State.LEAVING
            if not self._out:
                self._say_no_more()

    def doom(self, end: ChannelEnd) -> None:
        """End the connection because of an error. `_ended` is called in the reactor's next turn, never in a call that
        sends.
        """
        if self._doom is None and not self.closed:
            self._doom = end
            try:
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
            except OSError:
                pass  # ignore the error: the connection is already broken, and the reactor reports that

    def close(self) -> None:
        """Close the connection at once, without a call of `_ended`. A second call does nothing."""
        if not self.closed:
            self._state = _State.CLOSED
            self._watch.close()
            self._sock.close()
            self._out.clear()
            self._inbox = None

    def _over(self, end: ChannelEnd, now: float) -> News:
        self.close()
        # Report the error of `doom`, because later errors follow from it.
        return self._ended(self._doom or end, now)

    def _ready(self, fd: int, now: float) -> News:
        if self._doom is not None:
            return self._over(self._doom, now)
        if self._state is _State.SHAKING:
            return self._shake(now)
        if self._out:
            self._flush()
        return self._read(now)

    def _shake(self, now: float) -> News:
        """Do one step of the handshake. It includes the check of the peer's certificate."""
        try:
            if not isinstance(self._sock, ssl.SSLSocket):
                # Raises OSError if the peer has disconnected, because TLS cannot wrap such a socket.
                self._sock.getpeername()
                # Wrap the socket only after the reactor has reported it as ready. A peer that connects and sends
                # nothing then needs no TLS state.
                self._sock = self._credentials.wrap(self._sock)
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            self._watch.write_too(False)
            return None
        except ssl.SSLWantWriteError:
            self._watch.write_too(True)
            return None
        except OSError as error:
            return self._over(_judged(error, self._sock), now)
        identity = self._credentials.peer(self._sock)
        if identity is None:
            return self._over(
                ChannelEnd(why=ChannelEndKind.OTHER_KEY, words="it shows a certificate of another key"), now
            )
        self._watch.write_too(False)
        self._state = _State.OPEN
        self._inbox = FrameReader(self._hears[identity])
        return self._opened(identity, now)

    def _flush(self) -> None:
        """Send queued frames until the kernel accepts no more."""
        sock, out = self._sock, self._out
        assert isinstance(sock, ssl.SSLSocket), "nothing is sent before the handshake"
        try:
            while out:
                # After an incomplete write OpenSSL must get the same bytes again, so a queued frame is never changed.
                sent = sock.write(memoryview(out[0])[self._at : self._at + RECORD_BYTES])
                self._unread -= sent
                self._at += sent
                if self._at == len(out[0]):
                    out.popleft()
                    self._at = 0
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._watch.write_too(True)
            return
        except OSError as error:
            self.doom(ChannelEnd(why=ChannelEndKind.BROKEN, words=_said(error)))
            return
        self._watch.write_too(False)
        if self._state is _State.LEAVING:
            self._say_no_more()

    def _say_no_more(self) -> None:
        # Only stop sending. If the socket were closed with unread data, the kernel would reset the connection and drop
        # the last frames.
        try:
            socket.socket.shutdown(self._sock, socket.SHUT_WR)
        except OSError:
            pass  # ignore the error: the peer has already closed the connection

    def _read(self, now: float) -> News:
        """Read at most one TLS record, so that other connections get their turn."""
        sock = self._sock
        assert isinstance(sock, ssl.SSLSocket), "nothing is read before the handshake"
        try:
            data = sock.read(RECORD_BYTES)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLWantWriteError:
            self._watch.write_too(True)
            return None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            data = b""
        except OSError as error:
            return self._over(ChannelEnd(why=ChannelEndKind.BROKEN, words=_said(error)), now)
        if not data:
            return self._over(ChannelEnd(why=ChannelEndKind.LEFT, words="it closed the connection"), now)
        if self._state is _State.LEAVING or self._inbox is None:
            return None
        return self._deliver(self._inbox.take(data, now), now)

    def _deliver(self, messages: Iterable[Any], now: float) -> News:
        news: list[Event] = []
        taken = iter(messages)
        # A message may end the connection, so test `open` before each.
        while self.open:
            try:
                message = next(taken)
            except StopIteration:
                break
            except Malformed as error:
                return [*news, *(self._over(ChannelEnd(why=ChannelEndKind.MALFORMED, words=error.problem), now) or ())]
            news += self._on_message(message, now) or ()
        return news


#: OpenSSL's error reasons if one end has rejected the other's certificate.
_FOREIGN = frozenset(
    {
        "TLSV1_ALERT_UNKNOWN_CA",
        "TLSV1_ALERT_DECRYPT_ERROR",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "PEER_DID_NOT_RETURN_A_CERTIFICATE",
        "CERTIFICATE_VERIFY_FAILED",
    }
)
_OTHER_TLS = frozenset(
    {"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "NO_SHARED_CIPHER", "SSLV3_ALERT_HANDSHAKE_FAILURE"}
)


def _judged(error: OSError, sock: socket.socket) -> ChannelEnd:
    """Return why the connection ended, from the error of its failed handshake."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return ChannelEnd(why=ChannelEndKind.LEFT, words="it closed the connection during the handshake")
    if not isinstance(error, ssl.SSLError):
        return ChannelEnd(why=ChannelEndKind.BROKEN, words=_said(error))
    reason = error.reason or ""
    if reason in _FOREIGN:
        if isinstance(sock, ssl.SSLSocket) and sock.selected_alpn_protocol() == SPOKEN:
            return ChannelEnd(why=ChannelEndKind.OTHER_KEY, words="it is a holdfast with another key")
        return ChannelEnd(why=ChannelEndKind.NO_KEY, words="it speaks TLS and is no holdfast")
    if reason in _OTHER_TLS:
        return ChannelEnd(why=ChannelEndKind.NO_KEY, words="it speaks another version of TLS and is no holdfast")
    return ChannelEnd(why=ChannelEndKind.NO_TLS, words="it does not speak TLS, and so is no holdfast")


def _said(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or type(error).__name__}"
    return error.strerror or type(error).__name__
