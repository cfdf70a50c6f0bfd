package e2b

import (
	"encoding/json"
	"strings"

	"github.com/brig-run/brig"
)

// event sends one event of the running code to the client.
func (l *lines) event(e brig.CodeEvent) error {
	if err := l.sendPending(); err != nil {
		return err
	}
	switch {
	case e.Started != nil:
		l.mu.Lock()
		l.ran = true
		l.mu.Unlock()
		return l.send(line{Type: "number_of_executions", Count: &e.Started.Count})
	case e.Stdout != nil:
		return l.output("stdout", l.out.Add(e.Stdout))
	case e.Stderr != nil:
		return l.output("stderr", l.err.Add(e.Stderr))
	case e.Output != nil:
		if e.Output.Update {
			return nil // E2B's server ignores updates of displays
		}
		if err := l.flush(); err != nil {
			return err
		}
		return l.send(resultLine(e.Output))
	case e.Error != nil:
		// Only the result shows whether the end of the sandbox caused the error.
		l.pending = e.Error
	}
	return nil
}

// sendPending sends the exception that event has postponed.
func (l *lines) sendPending() error {
	e := l.pending
	if e == nil {
		return nil
	}
	l.pending = nil
	return l.exception(e.Name, e.Value, e.Traceback)
}

func (l *lines) exception(name, value, traceback string) error {
	if err := l.flush(); err != nil {
		return err
	}
	l.mu.Lock()
	l.failed = true
	l.mu.Unlock()
	return l.send(line{Type: "error", Name: &name, Value: &value, Traceback: &traceback})
}

// finish ends the stream with the result of the code.
func (l *lines) finish(res *brig.CodeResult) error {
	err := l.flushText()
	if err == nil {
		err = l.sendPending()
	}
	l.mu.Lock()
	failed := l.failed
	l.mu.Unlock()
	if e := res.Error; err == nil && e != nil && !failed {
		// The error was not reported as an event while the code ran.
		name := e.Name
		if res.Lost {
			name = "UnexpectedEndOfExecution"
		}
		err = l.exception(name, e.Value, e.Traceback)
	}
	return l.end(err)
}

// fail ends the stream if the outcome of the code is unknown.
func (l *lines) fail(cause error) error {
	e := brig.AsError(cause)
	name, value := "ExecutionAborted", e.Message
	if e.Kind == brig.FailedPrecondition {
		name, value = "ContextRestarting", "Context was restarted"
	}
	traceback := ""
	if e.Kind == brig.PolicyBlocked {
		name, traceback = "PolicyBlocked", strings.TrimSpace(e.Message+"\n"+e.Hint)
	}
	err := l.flushText()
	if err == nil {
		err = l.sendPending()
	}
	if err == nil {
		err = l.exception(name, value, traceback)
	}
	return l.end(err)
}

// end sends the last line, unless an earlier write failed.
func (l *lines) end(err error) error {
	if err == nil {
		err = l.send(line{Type: lineEnd})
	}
	return err
}

// flushText sends the output that is still buffered.
func (l *lines) flushText() error {
	if err := l.output("stdout", l.out.Flush()); err != nil {
		return err
	}
	if err := l.output("stderr", l.err.Flush()); err != nil {
		return err
	}
	return l.flush()
}

// forms maps MIME types to the keys of a result.
var forms = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
	"image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
	"application/json": "json", "application/javascript": "javascript",
	"application/vnd.brig.frame+json": "data", "application/vnd.brig.chart+json": "chart",
}

// resultLine converts a value to a line of the stream.
func resultLine(r *brig.Rich) map[string]any {
	out := map[string]any{"type": "result", "is_main_result": r.Main}
	extra := map[string]json.RawMessage{}
	for mime, v := range r.Data {
		switch key := forms[mime]; key {
		case "":
			extra[mime] = v
		case "text":
			out[key] = unquote(v)
		default:
			out[key] = v
		}
	}
	if len(extra) > 0 {
		out["extra"] = extra
	}
	return out
}

// unquote removes the quotes from a value's text if the value is a plain
// string: clients expect abc and not 'abc'.
func unquote(v json.RawMessage) any {
	var s string
	if json.Unmarshal(v, &s) != nil {
		return v
	}
	if n := len(s); n >= 2 && s[0] == s[n-1] && (s[0] == '\'' || s[0] == '"') {
		s = s[1 : n-1]
	}
	return s
}
