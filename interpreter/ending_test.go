package interpreter

import (
	"testing"

	"github.com/brig-run/brig"
)

// bufferedProcess is a process whose sent messages have not been received yet.
type bufferedProcess struct {
	brig.Process
	sent  string
	ended bool
}

func (a bufferedProcess) Ahead() ([]byte, bool) { return []byte(a.sent), a.ended }

// opaqueProcess is a process without an Ahead method.
type opaqueProcess struct{ brig.Process }

func TestHasEndedDetectsEndOfInterpreter(t *testing.T) {
	for _, c := range []struct {
		name string
		p    brig.Process
		want bool
	}{
		{"nothing", bufferedProcess{}, false},
		{"gone", bufferedProcess{ended: true}, true},
		{"output only", bufferedProcess{sent: "=12,0\n" + `{"type":"display","data":{}}` + "\n"}, false},
		{"the end", bufferedProcess{sent: `{"type":"end"}` + "\n"}, true},
		{"as Jupyter's driver writes it", bufferedProcess{sent: `{"code": 1, "type": "end"}` + "\n"}, true},
		{"behind a display", bufferedProcess{sent: "=12,0\n" + `{"type":"display"}` + "\n" + `{"type":"end","code":3}` + "\n"}, true},
		{"the beginning of a long one", bufferedProcess{sent: `{"type":"end","returned":"xxxx`}, true},
		{"the beginning of a display", bufferedProcess{sent: `{"type":"display","data":{"text/plain":"{\"type\":\"end\"}`}, false},
		{"a text that says so", bufferedProcess{sent: `{"type":"display","data":{"text/plain":"{\"type\":\"end\"}"}}` + "\n"}, false},
		{"no message", bufferedProcess{sent: "type end\n"}, false},
		{"a process that cannot say", opaqueProcess{}, false},
	} {
		s := &Session{Process: c.p}
		if got := s.HasEnded(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	for _, c := range []struct {
		name, sent string
		want       bool
	}{
		{"the end", `{"type":"end","nonce":"N"}` + "\n", true},
		{"the beginning of a long one", `{"type":"end","nonce":"N","returned":"xxxx`, true},
		{"an end of another request", `{"type":"end","nonce":"M"}` + "\n" + `{"type":"end","nonce":"M","returned":"xxxx`, false},
		{"an end without a nonce", `{"type":"end"}` + "\n" + `{"type":"end"`, false},
	} {
		s := &Session{Process: bufferedProcess{sent: c.sent}, Nonces: true, request: "N"}
		if got := s.HasEnded(); got != c.want {
			t.Errorf("with nonces, %s: %v", c.name, got)
		}
	}
}
