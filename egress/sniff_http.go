package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// protocolMatch is the protocol that the first bytes of a connection match.
type protocolMatch int

const (
	tooShort protocolMatch = iota
	notHTTP
	isHTTP  // a complete request header
	isHTTP2 // the complete header of the first stream of unencrypted HTTP/2
)

// maxMethod limits the length of a method.
const maxMethod = 64

// isBlank reports whether servers accept a byte as a separator between the words
// of a first line. Some accept every control character, and Python's accept blanks
// of Latin-1.
func isBlank(b byte) bool {
	switch b {
	case 0, '\n':
		return false
	case 0x85, 0xa0: // next line and no-break space of Latin-1
		return true
	}
	return b <= ' '
}

// skipBlanks returns the text after what servers skip before a first line. Other
// control characters begin binary protocols.
func skipBlanks(text []byte) []byte {
	for n, b := range text {
		if b != '\n' && !isBlank(b) || b < '\t' || b > '\r' && b < 0x1c {
			return text[n:]
		}
	}
	return nil
}

// matchProtocol distinguishes HTTP from other protocols. A method is any token,
// in upper or lower case, and line-based protocols may have commands of the
// same form: only the end of the line distinguishes them.
func matchProtocol(first []byte) protocolMatch {
	words := skipBlanks(first)
	end := bytes.IndexFunc(words, func(r rune) bool { return !isToken(string(r)) })
	switch {
	case end < 0 && len(words) > maxMethod || end == 0 || end > maxMethod:
		return notHTTP
	case end < 0 || string(words[end:]) == "\r":
		return tooShort
	case !isBlank(words[end]) || bytes.HasPrefix(words[end:], []byte("\r\n")):
		return notHTTP
	}
	line, rest, whole := bytes.Cut(words, []byte("\n"))
	if !whole {
		// "HTTP/1.1" may follow any text after the first word, because some servers accept blanks
		// and control characters in a target.
		if isBinary(words, end) {
			return notHTTP
		}
		return tooShort
	}
	http := bytes.Contains(bytes.ToUpper(line), []byte("HTTP/"))
	switch {
	case isHTTP09(string(words[:end]), string(line[end:])):
		return isHTTP
	case !http:
		return notHTTP
	case strings.HasPrefix(string(first), "PRI * HTTP/2"):
		return matchHTTP2(first)
	}
	for {
		line, rest, whole = bytes.Cut(rest, []byte("\n"))
		switch {
		case !whole:
			return tooShort
		case len(bytes.TrimSuffix(line, []byte("\r"))) == 0:
			return isHTTP
		}
	}
}

// isSingleWord reports whether the first bytes are a single incomplete word, which no server
// processes yet.
func isSingleWord(first []byte) bool {
	text := strings.TrimSuffix(string(skipBlanks(first)), "\r")
	return text == "" || isToken(text)
}

// isHTTP09 reports whether a line is a request of HTTP/0.9, which has no
// version and can name its host only in its target.
func isHTTP09(method, rest string) bool {
	for rest != "" && isBlank(rest[0]) {
		rest = rest[1:]
	}
	target := rest
	for target != "" && isBlank(target[len(target)-1]) {
		target = target[:len(target)-1]
	}
	for i := range len(target) {
		if isBlank(target[i]) {
			return false
		}
	}
	switch strings.ToUpper(method) {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE":
		return strings.HasPrefix(target, "/") || strings.Contains(target, "://")
	case "CONNECT":
		return strings.Contains(target, ":")
	}
	return false
}

// checkRequest returns the reason why the first request of a connection must
// not pass. A request that two servers may read differently must not pass.
func checkRequest(first []byte, host string) string {
	const malformed = "its HTTP is malformed"
	var lines headLines
	head := first
	for n := 0; ; n++ {
		line, rest, whole := bytes.Cut(head, []byte("\n"))
		text, plain := strings.CutSuffix(string(line), "\r")
		if !whole || !plain {
			return malformed
		}
		var reason string
		switch {
		case n == 0:
			reason = lines.parseRequestLine(text)
		case text != "":
			reason = lines.parseField(text)
		default:
			reason = lines.checkEnd()
		}
		switch {
		case reason != "":
			return malformed + ": " + reason
		case text == "":
			return checkHead(first[:len(first)-len(rest)], lines.hosts, host)
		}
		head = rest
	}
}

// checkHead is like checkRequest, for a header whose lines are well formed.
func checkHead(head []byte, hosts []string, host string) string {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	switch {
	case err != nil:
		return "its HTTP is malformed"
	case strings.EqualFold(r.Method, http.MethodConnect):
		return "HTTP asks for a tunnel to somewhere else"
	case len(hosts) != 1 || !isAuthorityFor(hosts[0], host) || !isAuthorityFor(r.Host, host) || r.URL.Host != "" && !isAuthorityFor(r.URL.Host, host):
		return "HTTP is for another host"
	case r.URL.User != nil || r.URL.Opaque != "" || !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*" && r.URL.Host == "":
		return "its HTTP is malformed"
	}
	return ""
}

// isAuthorityFor reports whether an authority is the given host, with or without a port.
func isAuthorityFor(authority, host string) bool {
	name, port, err := net.SplitHostPort(authority)
	if err != nil {
		name, port = authority, ""
	}
	return strings.Trim(port, "0123456789") == "" && canonicalHost(name) == host
}

// matchHTTP2 is like matchProtocol, for unencrypted HTTP/2.
func matchHTTP2(first []byte) protocolMatch {
	if _, err := parseFirstStream(first); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return tooShort
	}
	return isHTTP2
}

// parseFirstStream parses the header of the first stream.
func parseFirstStream(first []byte) (*http2.MetaHeadersFrame, error) {
	after, ok := bytes.CutPrefix(first, []byte(preface))
	if !ok {
		if len(first) < len(preface) && strings.HasPrefix(preface, string(first)) {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, errNotHTTP2
	}
	f := http2.NewFramer(io.Discard, bytes.NewReader(after))
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.MaxHeaderListSize = maxHeader
	f.SetMaxReadFrameSize(maxHTTP2Frame)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return nil, err
		}
		if head, ok := frame.(*http2.MetaHeadersFrame); ok {
			return head, nil
		}
	}
}

// checkStream returns the reason why the first stream of unencrypted HTTP/2
// must not pass.
func checkStream(first []byte, host string) string {
	head, err := parseFirstStream(first)
	if err != nil || head.Truncated {
		return "its HTTP is malformed"
	}
	named := 0
	for _, f := range head.Fields {
		switch {
		case f.Name == ":method" && strings.EqualFold(f.Value, http.MethodConnect):
			return "HTTP asks for a tunnel to somewhere else"
		case f.Name == ":authority" || f.Name == "host":
			if named++; !isAuthorityFor(f.Value, host) {
				return "HTTP is for another host"
			}
		}
	}
	if named == 0 {
		return "HTTP is for another host"
	}
	return ""
}
