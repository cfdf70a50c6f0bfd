package egress

import (
	"strconv"
	"strings"
)

// headLines parses the lines of a request's header. It determines where the
// request ends and which host it is for.
type headLines struct {
	old     bool // HTTP/1.0
	target  string
	hosts   []string
	length  int64 // -1: no length was sent
	lengths int
	chunked bool
	codings int
}

// parseRequestLine parses the first line, and returns the reason if it is invalid.
func (h *headLines) parseRequestLine(line string) (reason string) {
	h.length = -1
	method, rest, ok1 := strings.Cut(line, " ")
	target, proto, ok2 := strings.Cut(rest, " ")
	switch {
	case !ok1 || !ok2 || !isToken(method) || target == "" || hasControl(target) || strings.ContainsAny(target, " #"):
		return "its first line is not a request line"
	case proto == "HTTP/1.0":
		h.old = true
	case proto != "HTTP/1.1":
		return "it is not HTTP/1.1"
	}
	h.target = target
	return ""
}

// parseField parses a line of the header, and returns the reason if it is invalid.
func (h *headLines) parseField(line string) (reason string) {
	name, value, reason := cutField(line)
	if reason != "" {
		return reason
	}
	switch name {
	case "host":
		h.hosts = append(h.hosts, value)
	case "content-length":
		h.lengths++
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || strings.Trim(value, "0123456789") != "" {
			return "its length is not a number"
		}
		h.length = int64(n)
	case "transfer-encoding":
		h.codings++
		if !strings.EqualFold(value, "chunked") {
			return "its transfer coding is unknown"
		}
		h.chunked = true
	}
	return ""
}

// checkEnd is called after the last field. It returns the reason if the header is
// invalid.
func (h *headLines) checkEnd() (reason string) {
	switch {
	case h.lengths > 1 || h.codings > 1:
		return "it has more than one length"
	case h.lengths > 0 && h.codings > 0:
		return "it has both a length and chunks"
	case h.codings > 0 && h.old:
		return "it has chunks, which its HTTP version does not support"
	case len(h.hosts) > 1:
		return "it names more than one host"
	}
	// The host of an absolute target takes precedence, and servers ignore the
	// Host header.
	if _, after, ok := strings.Cut(h.target, "://"); ok && !strings.HasPrefix(h.target, "/") && len(h.hosts) == 1 {
		authority, _, _ := strings.Cut(after, "/")
		authority, _, _ = strings.Cut(authority, "?")
		if !strings.EqualFold(authority, h.hosts[0]) {
			return "its target and its header name different hosts"
		}
	}
	return ""
}

// cutField splits a field, and returns the name in lower case.
func cutField(line string) (name, value, reason string) {
	name, value, ok := strings.Cut(line, ":")
	value = strings.Trim(value, " \t")
	if !ok || !isToken(name) {
		return "", "", "a field of its header has no name"
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", "", "a field of its header has a control character"
	}
	name = strings.ToLower(name)
	switch strings.ReplaceAll(name, "_", "-") {
	case "host", "content-length", "transfer-encoding":
		if strings.Contains(name, "_") { // some servers treat it as a hyphen
			return "", "", "a field of its header can be taken for another"
		}
	}
	return name, value, ""
}

// checkTrailerField returns the reason why a trailer field is invalid.
func checkTrailerField(line string) (reason string) {
	name, _, reason := cutField(line)
	switch name {
	case "host", "content-length", "transfer-encoding":
		return "its trailers have fields that belong in the header"
	}
	return reason
}

// parseChunkSize parses the line before a chunk.
func parseChunkSize(line string) (int64, bool) {
	size, extension, _ := strings.Cut(line, ";")
	size = strings.TrimRight(size, " \t")
	if hasControl(strings.ReplaceAll(extension, "\t", " ")) || strings.Trim(size, "0123456789abcdefABCDEF") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(size, 16, 63)
	return int64(n), err == nil
}

// isToken reports whether s consists of the characters of methods and field
// names.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
