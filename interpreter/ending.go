package interpreter

import (
	"bytes"
	"encoding/json"
)

// HasEnded reports whether the interpreter has exited or has sent the last message of its run,
// even if Receive has not returned that message yet. It returns false if the process cannot
// determine this. It must not be called during a Receive. A Sink may call it.
func (s *Session) HasEnded() bool {
	p, ok := s.Process.(interface {
		Ahead() (sent []byte, ended bool)
	})
	if !ok {
		return false
	}
	sent, ended := p.Ahead()
	nonce := ""
	if s.Nonces {
		nonce = s.request
	}
	return ended || containsEnd(sent, nonce)
}

// containsEnd reports whether sent contains an end message with the nonce, or any end message if
// the nonce is empty. The last message in sent may be incomplete.
func containsEnd(sent []byte, nonce string) bool {
	for len(sent) > 0 {
		line, rest, whole := bytes.Cut(sent, []byte("\n"))
		if sent = rest; !whole {
			// The prefix of the message with which drivers end a run.
			mark := `{"type":"end"`
			if nonce != "" {
				mark += `,"nonce":"` + nonce + `"`
			}
			return bytes.HasPrefix(line, []byte(mark))
		}
		var m struct{ Type, Nonce string }
		if json.Unmarshal(line, &m) == nil && m.Type == "end" && (nonce == "" || m.Nonce == nonce) {
			return true
		}
	}
	return false
}
