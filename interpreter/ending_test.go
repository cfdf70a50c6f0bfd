package interpreter

import (
	"testing"

	"github.com/brig-run/brig"
)

// ahead is a process that has sent messages.
type ahead struct {
	brig.Process
	sent  string
	ended bool
}

func (a ahead) Ahead() ([]byte, bool) { return []byte(a.sent), a.ended }

// mute is a process without an Ahead method.
type mute struct{ brig.Process }

func TestHasEnded(t *testing.T) {
	for _, c := range []struct {
		name string
		p    brig.Process
		want bool
	}{
		{"nothing", ahead{}, false},
		{"gone", ahead{ended: true}, true},
		{"output only", ahead{sent: "=12,0\n" + `{"type":"display","data":{}}` + "\n"}, false},
		{"the end", ahead{sent: `{"type":"end"}` + "\n"}, true},
		{"as Jupyter's driver writes it", ahead{sent: `{"code": 1, "type": "end"}` + "\n"}, true},
		{"behind a display", ahead{sent: "=12,0\n" + `{"type":"display"}` + "\n" + `{"type":"end","code":3}` + "\n"}, true},
		{"the beginning of a long one", ahead{sent: `{"type":"end","returned":"xxxx`}, true},
		{"the beginning of a display", ahead{sent: `{"type":"display","data":{"text/plain":"{\"type\":\"end\"}`}, false},
		{"a text that says so", ahead{sent: `{"type":"display","data":{"text/plain":"{\"type\":\"end\"}"}}` + "\n"}, false},
		{"no message", ahead{sent: "type end\n"}, false},
		{"a process that cannot say", mute{}, false},
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
		{"an end of another order", `{"type":"end","nonce":"M"}` + "\n" + `{"type":"end","nonce":"M","returned":"xxxx`, false},
		{"an end without a nonce", `{"type":"end"}` + "\n" + `{"type":"end"`, false},
	} {
		s := &Session{Process: ahead{sent: c.sent}, Nonces: true, order: "N"}
		if got := s.HasEnded(); got != c.want {
			t.Errorf("with nonces, %s: %v", c.name, got)
		}
	}
}
