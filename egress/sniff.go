package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

const (
	// sniffTimeout limits how long the first bytes of a connection may take after
	// the first of them, and maxSniff limits their length.
	sniffTimeout = 10 * time.Second
	maxSniff     = 64 << 10
	// singleWordTimeout is how long sniff waits for further bytes after a single
	// word.
	singleWordTimeout = 100 * time.Millisecond
)

// handshake is the type of the TLS record that a client sends first. hidden is
// the extension with which a client encrypts the server name (RFC 9849).
const (
	handshake    = 0x16
	echExtension = 0xfe0d
)

// sniffer has the functions with which sniff reserves memory and forwards data.
type sniffer struct {
	reserveConn func() bool
	releaseConn func()
	out         func([]byte) error // forwards bytes before the check is complete
}

// sniff reads a client's first bytes. If the bytes are TLS or HTTP for another host, it returns the
// reason why they must not pass. It returns all bytes that it has read and not forwarded yet.
func sniff(c net.Conn, host string, do sniffer) (first []byte, reason string) {
	first = make([]byte, 4<<10)
	n, err := c.Read(first)
	first = first[:n]
	if err != nil || n == 0 {
		return first, ""
	}
	defer c.SetReadDeadline(time.Time{})
	if !do.reserveConn() {
		return first, reasonNoMemory
	}
	held := true
	defer func() {
		if held {
			do.releaseConn()
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(sniffTimeout))
	if len(first) == 1 && isRecord(first) && first[0] != handshake { // the next byte decides
		first = slices.Grow(first, 4<<10)
		n, err := c.Read(first[1:cap(first)])
		if first = first[:1+n]; n == 0 {
			if errors.Is(err, io.EOF) {
				return first, ""
			}
			return first, "its first words were cut short"
		}
	}
	if isRecord(first) {
		return sniffTLS(first, c, host)
	}
	sent := 0 // bytes of a single word that were forwarded
	for {
		switch kind := matchProtocol(first); {
		case kind == notHTTP:
			return first[sent:], ""
		case kind == isHTTP:
			return first[sent:], checkRequest(first, host)
		case kind == isHTTP2:
			return first[sent:], checkStream(first, host)
		case len(first) >= maxSniff:
			return first[sent:], "its first words are too long"
		}
		first = slices.Grow(first, 4<<10)
		singleWord := isSingleWord(first)
		if singleWord && sent < len(first) {
			_ = c.SetReadDeadline(time.Now().Add(singleWordTimeout))
		}
		n, err := c.Read(first[len(first):cap(first)])
		first = first[:len(first)+n]
		switch {
		case singleWord && n == 0 && isTimeout(err) && sent < len(first):
			// A client that sends one word and waits may get a response to it.
			// The bytes that follow are still checked, together with the word.
			if do.out(first[sent:]) != nil {
				return nil, ""
			}
			sent = len(first)
			do.releaseConn()
			_ = c.SetReadDeadline(time.Time{})
			var more [1]byte
			n, err := c.Read(more[:])
			first = slices.Concat(first, more[:n])
			if held = do.reserveConn(); !held {
				return nil, reasonNoMemory
			}
			if n == 0 && err != nil {
				return nil, ""
			}
			_ = c.SetReadDeadline(time.Now().Add(sniffTimeout))
		case singleWord && n == 0 && errors.Is(err, io.EOF):
			return first[sent:], "" // a single word, after which the connection ended
		case err != nil:
			return first[sent:], "its first words were cut short"
		case singleWord:
			_ = c.SetReadDeadline(time.Now().Add(sniffTimeout))
		}
	}
}

// isRecord reports whether the first bytes are a TLS record. Servers skip some
// records before a client hello, such as a warning.
func isRecord(first []byte) bool {
	const changeCipherSpec, heartbeat = 0x14, 0x18
	return first[0] == handshake || first[0] >= changeCipherSpec && first[0] <= heartbeat && (len(first) < 2 || first[1] == 3)
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// sniffTLS reads a client hello, and compares its server name with host.
func sniffTLS(first []byte, c net.Conn, host string) ([]byte, string) {
	var seen bytes.Buffer
	reason := "it begins as TLS and is not"
	errStop := errors.New("seen enough")
	from := io.TeeReader(io.LimitReader(io.MultiReader(bytes.NewReader(first), c), maxSniff), &seen)
	_ = tls.Server(readOnly{c, from}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		switch {
		case slices.Contains(h.Extensions, echExtension):
			reason = "TLS hides for which host it is"
		case h.ServerName == "":
			reason = "TLS does not say for which host it is"
		case strings.ToLower(h.ServerName) != host:
			reason = "TLS is for another host"
		default:
			reason = ""
		}
		return nil, errStop
	}}).Handshake()
	return seen.Bytes(), reason
}

// readOnly is a connection that only reads.
type readOnly struct {
	net.Conn
	from io.Reader
}

func (r readOnly) Read(p []byte) (int, error)         { return r.from.Read(p) }
func (r readOnly) Write(p []byte) (int, error)        { return len(p), nil }
func (r readOnly) Close() error                       { return nil }
func (r readOnly) SetDeadline(time.Time) error        { return nil }
func (r readOnly) SetReadDeadline(time.Time) error    { return nil }
func (r readOnly) SetWriteDeadline(t time.Time) error { return nil }
