package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/brig-run/brig"
)

func raw(m map[string]any) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for k, v := range m {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		out[k] = b
	}
	return out
}

// RunCode runs one of the scripted sources.
func (s *stub) RunCode(ctx context.Context, name string, c brig.Code, on func(brig.CodeEvent) error) (*brig.CodeResult, error) {
	if _, err := s.Get(ctx, name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.codes = append(s.codes, c)
	s.mu.Unlock()
	if _, err := s.context(name, c.Context); err != nil {
		return nil, err
	}
	res := &brig.CodeResult{Context: c.Context, Count: 1}
	say := func(evs ...brig.CodeEvent) {
		for _, e := range evs {
			_ = on(e)
		}
	}
	if c.Source == "stuck" { // waits until its sandbox ends, and never runs
		s.ended <- nil
		for {
			if b, err := s.Get(ctx, name); err != nil || b.State == brig.Ended || ctx.Err() != nil {
				return nil, brig.Errorf(brig.FailedPrecondition, "the sandbox has ended")
			}
			time.Sleep(time.Millisecond)
		}
	}
	if c.Source == "queue" {
		<-s.proceed
	}
	if c.Source == "blocked" {
		return nil, brig.Errorf(brig.PolicyBlocked, "Code is unsafe. Line 1: import of os is denied").WithHint("leave that out")
	}
	if c.Source == "expired early" {
		res.SandboxEnded = brig.LeaseExpired
		return res, nil
	}
	say(brig.CodeEvent{Started: res})
	switch c.Source {
	case "split": // characters that are split across writes, and bytes that are not valid UTF-8
		for _, p := range []string{"caf\xc3", "\xa9 \xf0\x9f", "\x98\x80\n", "\xff\n", "end\xc3"} {
			say(brig.CodeEvent{Stdout: []byte(p)})
		}
		say(brig.CodeEvent{Stderr: []byte("warn\n")})
	case "rich":
		say(brig.CodeEvent{Output: &brig.Rich{Data: raw(map[string]any{"image/png": "aGk=", "text/plain": "<Figure>", "application/vnd.brig.chart+json": map[string]any{"type": "line"}})}},
			brig.CodeEvent{Output: &brig.Rich{Main: true, Data: raw(map[string]any{
				"text/plain": "'abc'", "text/html": "<b>é</b>", "text/markdown": "m", "image/svg+xml": "<svg/>", "image/jpeg": "aGk=",
				"application/pdf": "aGk=", "text/latex": "$x$", "application/json": map[string]any{"a": 1}, "application/javascript": "1",
				"application/vnd.brig.frame+json": map[string]any{"a": []int{1}}, "image/gif": "R0lG",
			})}})
	case "progress":
		displayed, update := brig.Rich{DisplayID: "bar", Data: raw(map[string]any{"text/plain": "0"})}, brig.Rich{DisplayID: "bar", Update: true, Data: raw(map[string]any{"text/plain": "1"})}
		say(brig.CodeEvent{Output: &displayed}, brig.CodeEvent{Output: &update}, brig.CodeEvent{Cleared: &brig.ClearRequest{}}, brig.CodeEvent{Output: &update})
	case "raise":
		res.Error = &brig.CodeError{Name: "ValueError", Value: "bad", Traceback: "Traceback…"}
		say(brig.CodeEvent{Stdout: []byte("one\n")}, brig.CodeEvent{Error: res.Error})
	case "die":
		res.Error, res.Lost = &brig.CodeError{Name: "InterpreterDied", Value: "the interpreter ended"}, true
	case "restarted":
		return nil, brig.Errorf(brig.FailedPrecondition, "the context was restarted while the code ran")
	case "killed":
		say(brig.CodeEvent{Stdout: []byte("so far")})
		s.end(name)
		return nil, brig.Errorf(brig.FailedPrecondition, "the sandbox has ended")
	case "expired": // the engine reports the end as an error of the code
		s.end(name)
		res.Error, res.Lost, res.SandboxEnded = &brig.CodeError{Name: "SandboxEnded"}, true, brig.LeaseExpired
		say(brig.CodeEvent{Stdout: []byte("so far\xc3")}, brig.CodeEvent{Error: res.Error})
	case "broken":
		return nil, brig.Errorf(brig.Internal, "secret")
	case "flood":
		for on(brig.CodeEvent{Stdout: bytes.Repeat([]byte("x"), 64<<10)}) == nil {
		}
		s.ended <- context.Cause(ctx)
		return nil, context.Cause(ctx)
	case "talk":
		say(brig.CodeEvent{Stdout: []byte("one\n")}, brig.CodeEvent{Stdout: []byte("two\n")})
		<-ctx.Done()
		return nil, ctx.Err()
	case "wait":
		<-ctx.Done()
		s.ended <- ctx.Err()
		return nil, ctx.Err()
	case "queue":
		<-s.proceed
	}
	return res, nil
}
