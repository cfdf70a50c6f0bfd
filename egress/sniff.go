package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// sniffTime bounds how long the first words of a connection may take, once
	// they have begun; maxSniff how long they may be.
	sniffTime = 10 * time.Second
	maxSniff  = 64 << 10
)

// handshake is the type of a TLS record with which a client begins; hidden is
// the extension with which it hides for whom (RFC 9849).
const (
	handshake = 0x16
	hidden    = 0xfe0d
)

// sniff reads what a client says first, and says why it must not go on if that
// is TLS or HTTP for another host. Everything that it has read it returns.
func sniff(c net.Conn, host string) (first []byte, why string) {
	first = make([]byte, 4<<10)
	n, err := c.Read(first)
	first = first[:n]
	if err != nil || n == 0 {
		return first, ""
	}
	_ = c.SetReadDeadline(time.Now().Add(sniffTime))
	defer c.SetReadDeadline(time.Time{})
	if first[0] == handshake {
		return sniffTLS(first, c, host)
	}
	for {
		switch kind := looksLike(first); {
		case kind == notHTTP:
			return first, ""
		case kind == isHTTP:
			return first, checkRequest(first, host)
		case len(first) >= maxSniff:
			return first, "its first words are too long"
		}
		first = slices.Grow(first, 4<<10)
		n, err := c.Read(first[len(first):cap(first)])
		first = first[:len(first)+n]
		if err != nil {
			return first, "its first words were cut short"
		}
	}
}

// sniffTLS reads a client hello.
func sniffTLS(first []byte, c net.Conn, host string) ([]byte, string) {
	var seen bytes.Buffer
	why := "it begins as TLS and is not"
	stop := errors.New("seen enough")
	from := io.TeeReader(io.LimitReader(io.MultiReader(bytes.NewReader(first), c), maxSniff), &seen)
	_ = tls.Server(readOnly{c, from}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		switch {
		case slices.Contains(h.Extensions, hidden):
			why = "TLS hides for which host it is"
		case h.ServerName == "":
			why = "TLS does not say for which host it is"
		case strings.ToLower(h.ServerName) != host:
			why = "TLS is for another host"
		default:
			why = ""
		}
		return nil, stop
	}}).Handshake()
	return seen.Bytes(), why
}

// readOnly is a connection of which only what comes is used.
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

// likeness says what first words look like.
type likeness int

const (
	tooShort likeness = iota
	notHTTP
	isHTTP // a whole head of a request
)

// looksLike tells HTTP/1 from everything else. Protocols of lines may have
// commands of the same names: only the end of the line tells.
func looksLike(first []byte) likeness {
	line, _, whole := bytes.Cut(first, []byte("\n"))
	word, _, spaced := bytes.Cut(line, []byte(" "))
	if !spaced && !whole {
		for _, m := range methods() {
			if strings.HasPrefix(m, string(first)) {
				return tooShort
			}
		}
		return notHTTP
	}
	if !slices.Contains(methods(), string(word)) {
		return notHTTP
	}
	if !whole {
		return tooShort
	}
	if !bytes.Contains(line, []byte(" HTTP/1.")) {
		return notHTTP
	}
	if bytes.Contains(first, []byte("\n\r\n")) || bytes.Contains(first, []byte("\n\n")) {
		return isHTTP
	}
	return tooShort
}

func methods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
}

// checkRequest says why the first request of a connection must not go on.
func checkRequest(head []byte, host string) string {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	switch {
	case err != nil:
		return "its HTTP is malformed"
	case r.Method == http.MethodConnect:
		return "HTTP asks for a tunnel to somewhere else"
	case hostOnly(r.Host) != host || r.URL.Host != "" && hostOnly(r.URL.Host) != host:
		return "HTTP is for another host"
	}
	return ""
}

// hostOnly is a Host header without its port, in canonical form.
func hostOnly(s string) string {
	if h, _, err := net.SplitHostPort(s); err == nil {
		s = h
	}
	return strings.ToLower(strings.TrimSuffix(s, "."))
}
