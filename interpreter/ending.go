package interpreter

import (
	"bytes"
	"encoding/json"
)

// HasEnded reports whether the interpreter has sent the last message of its
// run, or has exited, even if the message was not received yet. It returns
// false if the process cannot determine this. It must not be called during a
// Receive. A Sink may call it.
func (s *Session) HasEnded() bool {
	p, ok := s.Process.(interface {
		Ahead() (sent []byte, ended bool)
	})
	if !ok {
		return false
	}
	sent, ended := p.Ahead()
	return ended || containsEnd(sent)
}

// endMark is the start of the message with which drivers end a run.
var endMark = []byte(`{"type":"end"`)

// containsEnd reports whether messages contain an end. The last one may be
// incomplete.
func containsEnd(sent []byte) bool {
	for len(sent) > 0 {
		line, rest, whole := bytes.Cut(sent, []byte("\n"))
		if sent = rest; !whole {
			return bytes.HasPrefix(line, endMark)
		}
		var m struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(line, &m) == nil && m.Type == "end" {
			return true
		}
	}
	return false
}
