package interpreter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// scriptedDriver is a fake driver process. It responds to requests with lines in which NONCE is
// replaced with the nonce of the request.
type scriptedDriver struct {
	brig.Process
	respond func(o Request) []string
	lines   chan string
	killed  chan struct{}
	once    sync.Once
}

func newScripted(respond func(o Request) []string) *scriptedDriver {
	return &scriptedDriver{respond: respond, lines: make(chan string, 1<<16), killed: make(chan struct{})}
}

func (p *scriptedDriver) Send(b []byte) error {
	var o Request
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	for _, line := range p.respond(o) {
		p.lines <- strings.ReplaceAll(line, "NONCE", o.Nonce)
	}
	return nil
}

func (p *scriptedDriver) Receive() (brig.From, []byte, error) {
	select {
	case line := <-p.lines:
		if line == "EOF" {
			return 0, nil, io.EOF
		}
		return brig.FromMessage, []byte(line), nil
	case <-p.killed:
		return 0, nil, io.EOF
	}
}

func (p *scriptedDriver) Kill(context.Context) error {
	p.once.Do(func() { close(p.killed) })
	return nil
}

// unreadCounter is a process that reports how many bytes it has not read.
type unreadCounter struct {
	*scriptedDriver
	n func() int
}

func (p unreadCounter) Unread() (int, bool) { return p.n(), true }

const (
	startedLine = `{"type":"started","nonce":"NONCE","count":1}`
	endLine     = `{"type":"end","nonce":"NONCE"}`
	pongLine    = `{"type":"pong","nonce":"NONCE"}`
)

// TestDoChecksNonces verifies which lines before and after a response end the session, and that
// no earlier line is accepted as the response to the next request.
func TestDoChecksNonces(t *testing.T) {
	for _, c := range []struct {
		name   string
		before []string // lines on the channel before the response
		after  []string // lines after the response
		want   [2]error // errors of the request and of the next request
	}{
		{name: "control"},
		{name: "no nonce", before: []string{`{"type":"end"}`}, want: [2]error{errForeign, nil}},
		{name: "a display without a nonce", before: []string{`{"type":"display","data":{}}`}, want: [2]error{errForeign, nil}},
		{name: "another nonce", before: []string{`{"type":"end","nonce":"AAAA"}`}, want: [2]error{errForeign, nil}},
		{name: "a pong that was not asked for", before: []string{`{"type":"pong","nonce":"rouse"}`}, want: [2]error{errForeign, nil}},
		{name: "a second ready", before: []string{`{"type":"ready","nonces":true}`}, want: [2]error{errForeign, nil}},
		{name: "not JSON", before: []string{"end"}, want: [2]error{errGarbage, nil}},
		{name: "an empty line", before: []string{""}, want: [2]error{errGarbage, nil}},
		{name: "not an object", before: []string{"[]"}, want: [2]error{errGarbage, nil}},
		{name: "a deep one", before: []string{`{"type":"display","nonce":"NONCE","data":{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}}`}, want: [2]error{errGarbage, nil}},
		{name: "many parts", before: []string{`{"type":"display","nonce":"NONCE","data":{` + strings.Repeat(`"a":0,`, maxParts) + `"a":0}}`}, want: [2]error{errGarbage, nil}},
		{name: "half a line", before: []string{`{"type":"end"` + startedLine}, want: [2]error{errGarbage, nil}},
		{name: "the driver's violation", before: []string{`{"type":"violation","nonce":"NONCE","name":"lost"}`}, want: [2]error{errLost, nil}},
		{name: "the driver's other violation", before: []string{`{"type":"violation","nonce":"NONCE","name":"anything"}`}, want: [2]error{errForeign, nil}},
		{name: "a second started", before: []string{startedLine}, want: [2]error{errRepeated, nil}},
		{name: "an end of its own", before: []string{endLine}, want: [2]error{nil, errForeign}},
		{name: "a second end", after: []string{endLine}, want: [2]error{nil, errForeign}},
		{name: "between requests", after: []string{`{"type":"display","data":{}}`}, want: [2]error{nil, errForeign}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := 0
			p := newScripted(func(Request) []string {
				if n++; n > 1 {
					return []string{startedLine, endLine}
				}
				return append(append(append([]string{}, c.before...), startedLine, endLine), c.after...)
			})
			s := &Session{Process: p, Nonces: true}
			for i, want := range c.want {
				m, err := s.Do(t.Context(), Request{Op: "cell"}, Sink{})
				if !errors.Is(err, want) || want == nil && m.Type != "end" {
					t.Errorf("request %d: %+v, %v, want %v", i, m, err, want)
				}
				if err != nil {
					return
				}
			}
		})
	}
}

// Do accepts the messages of drivers of earlier versions, which have no nonces.
func TestDoAcceptsMessagesWithoutNonces(t *testing.T) {
	p := newScripted(func(Request) []string {
		return []string{"garbage", `{"type":"pong","nonce":"rouse"}`, `{"type":"started"}`, `{"type":"end"}`}
	})
	s := &Session{Process: p}
	var types []string
	m, err := s.Do(t.Context(), Request{Op: "cell"}, Sink{Message: func(m *Message) { types = append(types, m.Type) }})
	if err != nil || m.Type != "end" || fmt.Sprint(types) != "[started]" {
		t.Errorf("%+v, %v, %v", m, err, types)
	}
}

// Sync discards all lines before the response to its own ping, including other pongs.
func TestSyncDiscardsPendingMessages(t *testing.T) {
	p := newScripted(func(Request) []string {
		return []string{"garbage", endLine, `{"type":"pong","nonce":"other"}`, `{"type":"pong"}`, pongLine, endLine}
	})
	s := &Session{Process: p, Nonces: true}
	if err := s.Sync("mine", Sink{}); err != nil || len(p.lines) != 1 {
		t.Errorf("err = %v, %d unread lines", err, len(p.lines))
	}
}

// TestLostRequestIsDetected verifies that an unanswered request counts as lost unless the driver
// has not read it yet or is still busy with an earlier request.
func TestLostRequestIsDetected(t *testing.T) {
	ping := func(o Request) []string {
		if o.Op == "ping" {
			return []string{pongLine}
		}
		return nil
	}
	long := func(p *scriptedDriver, nonce *string) {
		time.Sleep(time.Hour)
		p.lines <- strings.ReplaceAll(endLine, "NONCE", *nonce)
	}
	for _, c := range []struct {
		name   string
		answer func(o Request) []string
		unread func() int // nil if the process cannot determine it
		late   bool       // the driver answers after an hour
		want   error
		within time.Duration
	}{
		{name: "it was read", unread: func() int { return 0 }, want: errLost, within: 2*requestGrace + time.Second},
		{name: "it was not read yet", unread: func() int { return 1 }, late: true, within: 2 * time.Hour},
		{name: "the ping is answered first", answer: ping, want: errLost, within: requestGrace + time.Second},
		{name: "nothing is answered yet", late: true, within: 2 * time.Hour},
		{name: "it has begun", unread: func() int { return 0 }, answer: func(Request) []string { return []string{startedLine} }, late: true, within: 2 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var nonce string
				p := newScripted(nil)
				p.respond = func(o Request) []string {
					if o.Op == "cell" {
						nonce = o.Nonce
						if c.late {
							go long(p, &nonce)
						}
					}
					if c.answer != nil {
						return c.answer(o)
					}
					return nil
				}
				s := &Session{Process: p, Nonces: true}
				if c.unread != nil {
					s.Process = unreadCounter{p, c.unread}
				}
				begin := time.Now()
				_, err := s.Do(t.Context(), Request{Op: "cell"}, Sink{})
				if took := time.Since(begin); !errors.Is(err, c.want) || c.want == nil && err != nil || took > c.within {
					t.Errorf("%v after %v, want %v", err, took, c.want)
				}
			})
		})
	}
}

// Pongs that no caller waits for are not violations, even if they arrive after the end of the
// request during which the ping was sent.
func TestExpectedPongsAreNotViolations(t *testing.T) {
	p := newScripted(func(o Request) []string {
		switch o.Op {
		case "ping":
			return []string{pongLine}
		case "cell":
			return []string{startedLine, endLine}
		}
		return nil
	})
	s := &Session{Process: p, Nonces: true}
	s.Wake()
	if err := s.Prepare(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Do(t.Context(), Request{Op: "cell"}, Sink{}); err != nil {
			t.Fatal(err)
		}
		s.Wake()
	}
	second, _ := s.sendPing()
	p.lines <- strings.ReplaceAll(pongLine, "NONCE", second)
	if _, err := s.Do(t.Context(), Request{Op: "cell"}, Sink{}); !errors.Is(err, errForeign) {
		t.Errorf("a pong that is repeated: %v", err)
	}
}

// FuzzDo verifies that Do never accepts a line without the nonce as a response.
func FuzzDo(f *testing.F) {
	for _, line := range []string{`{"type":"end"}`, `{"type":"end","nonce":""}`, `{"type":"pong","nonce":"rouse"}`, "", "\x00\xff", `{"TYPE":"end","Nonce":null}`, `{"type":"end","nonce":"a","nonce":"b"}`, `null`, `=1,2`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		p := newScripted(func(Request) []string {
			var out []string
			for line := range bytes.SplitSeq(lines, []byte("\n")) {
				out = append(out, string(line))
			}
			return append(out, "EOF")
		})
		s := &Session{Process: p, Nonces: true}
		_, err := s.Do(t.Context(), Request{Op: "program"}, Sink{Message: func(m *Message) { t.Errorf("%+v was accepted as a response", m) }})
		if v := (*ViolationError)(nil); !errors.As(err, &v) {
			t.Errorf("Do returned %v", err)
		}
	})
}

// A request that cannot be encoded is not reported as the end of the interpreter, which has received
// nothing and executes the next request. The control is an interpreter that has ended.
func TestRequestThatCannotBeEncoded(t *testing.T) {
	s := &Session{Process: newScripted(func(Request) []string { return []string{startedLine, endLine} }), Nonces: true}
	invalid := Request{Op: "program", Arguments: json.RawMessage("{")}
	for range 2 {
		if _, err := s.Do(t.Context(), invalid, Sink{}); errors.Is(err, ErrGone) || !errors.As(err, new(*RequestError)) {
			t.Errorf("%v", err)
		}
		if m, err := s.Do(t.Context(), Request{Op: "cell"}, Sink{}); err != nil || m.Type != "end" {
			t.Errorf("the next request: %+v, %v", m, err)
		}
	}
	ended := &Session{Process: endedDriver{}}
	if _, err := ended.Do(t.Context(), Request{Op: "cell"}, Sink{}); !errors.Is(err, ErrGone) {
		t.Errorf("control: %v", err)
	}
}

// endedDriver is a process whose channel is closed.
type endedDriver struct{ brig.Process }

func (endedDriver) Send([]byte) error { return io.ErrClosedPipe }
