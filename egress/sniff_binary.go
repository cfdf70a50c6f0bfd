package egress

import (
	"bytes"
	"strconv"
)

// isBinary reports whether text that begins with a word of the given length and a blank is of a
// known binary protocol, whose clients do not send a line and wait. The following bytes are not
// checked, so the message must be complete and valid. An incomplete message could be the beginning
// of a request.
func isBinary(text []byte, end int) bool {
	switch word := string(text[:end]); {
	case word == "AMQP":
		return isAMQP(text)
	case end > 4:
		return isGit(text, word)
	case end == 1 && len(text) > 2:
		// MongoDB and MySQL begin with a little-endian length of three or four bytes. The target of
		// a request does not begin with a NUL.
		return text[1] < ' ' && text[2] == 0 || isLDAP(text)
	}
	return false
}

// isAMQP reports whether text begins with a header of AMQP: a protocol, and the
// numbers of a version.
func isAMQP(text []byte) bool {
	return len(text) >= 8 && text[4] <= 3 && text[5] == 1 && (text[6] == 0 || text[7] == 0)
}

// isGit reports whether text begins with a line of git's own protocol: its length,
// a command, and a host after a NUL.
func isGit(text []byte, word string) bool {
	length, err := strconv.ParseUint(word[:4], 16, 16)
	if err != nil || length > uint64(len(text)) {
		return false
	}
	switch word[4:] {
	case "git-upload-pack", "git-receive-pack", "git-upload-archive":
		return bytes.IndexByte(text[:length], 0) >= 0
	}
	return false
}

// isLDAP reports whether text begins with a message of LDAP with a length of one
// byte: a number, an operation that a client may send first, and controls.
func isLDAP(text []byte) bool {
	const (
		sequence, integer              = '0', 2
		bind, unbind, search, extended = 0x60, 0x42, 0x63, 0x77
		controls                       = 0xa0
	)
	if text[0] != sequence || len(text)-2 < int(text[1]) {
		return false
	}
	m := text[2 : 2+int(text[1])]
	if len(m) < 2 || m[0] != integer || m[1] < 1 || m[1] > 4 || len(m) < 2+int(m[1])+2 {
		return false
	}
	op := m[2+m[1]:]
	switch op[0] {
	case bind, unbind, search, extended:
	default:
		return false
	}
	rest := op[2:]
	n := int(op[1])
	return n == len(rest) || n < len(rest) && rest[n] == controls
}
