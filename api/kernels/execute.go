package kernels

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// execute makes the kernel run code and reports its events. An error of the
// code or the Service is reported to the client. A returned error ends the
// connection.
func (c *channel) execute(ctx context.Context, r *request, x *executeRequest) error {
	run := &codeExecution{c: c, ctx: ctx, r: r, silent: x.Silent, code: *x.Code}
	code := cell{source: run.code, uncounted: x.Silent || x.History != nil && !*x.History}
	if code.source == "" {
		code.source = "\n" // empty code is allowed
	}
	end, err := c.k.execute(ctx, code, eventSink{onStart: run.onStart, stream: run.onOutput, onDisplay: run.onDisplay, onClear: run.onClear})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil {
		err = run.flush()
	} else {
		end, err = &execResult{run.count, c.toCodeError(err)}, run.flush()
	}
	if err != nil {
		return err
	}
	reply := content{"status": "ok", "execution_count": end.count, "user_expressions": expressionErrors(x), "payload": []string{}}
	if e := end.error; e != nil {
		failure := content{"ename": e.Name, "evalue": e.Value, "traceback": tracebackLines(e)}
		if err := c.send(ctx, r, "iopub", "error", failure); err != nil {
			return err
		}
		for k, v := range failure {
			reply[k] = v
		}
		reply["status"] = "error"
	}
	return c.send(ctx, r, r.channel, "execute_reply", reply)
}

// expressionErrors returns an error for each expression, because expressions are
// not evaluated.
func expressionErrors(x *executeRequest) content {
	out := content{}
	for _, name := range x.Expressions {
		out[name] = content{"status": "error", "ename": "NotImplementedError", "evalue": "user_expressions are not evaluated here", "traceback": []string{}}
	}
	return out
}

// tracebackLines returns the lines of an error's traceback. If the error has no
// traceback, it returns the name and value, because clients display only the
// traceback.
func tracebackLines(e *brig.CodeError) []string {
	text := strings.TrimRight(e.Traceback, "\n")
	if text == "" {
		text = strings.TrimSuffix(e.Name+": "+e.Value, ": ")
	}
	return strings.Split(text, "\n")
}

// codeExecution is the state of an execution of code for a client.
type codeExecution struct {
	c        *channel
	ctx      context.Context
	r        *request
	silent   bool
	code     string
	count    int
	out, err httpapi.Text
}

// onStart reports that the code begins to run.
func (run *codeExecution) onStart(count int) error {
	run.count = count
	if run.silent {
		return nil
	}
	return run.c.send(run.ctx, run.r, "iopub", "execute_input", content{"code": run.code, "execution_count": count})
}

// onOutput reports output. It buffers incomplete characters.
func (run *codeExecution) onOutput(name string, p []byte) error {
	text := run.out.Add
	if name == "stderr" {
		text = run.err.Add
	}
	return run.emit(name, text(p))
}

func (run *codeExecution) emit(name, text string) error {
	if text == "" {
		return nil
	}
	return run.c.send(run.ctx, run.r, "iopub", "stream", content{"name": name, "text": text})
}

// flush reports the bytes that stream buffered.
func (run *codeExecution) flush() error {
	if err := run.emit("stdout", run.out.Flush()); err != nil {
		return err
	}
	return run.emit("stderr", run.err.Flush())
}

// selectForms returns the representations of a value that ipykernel would send.
// Clients pass all representations to their model, so Brig's additional ones
// are sent only on request: charts and frames as JSON, and JSON in addition to
// the text of lists and dictionaries.
func (run *codeExecution) selectForms(data map[string]json.RawMessage) map[string]json.RawMessage {
	if run.r.forms {
		return data
	}
	out := map[string]json.RawMessage{}
	for mime, form := range data {
		if !strings.HasPrefix(mime, "application/vnd.brig.") {
			out[mime] = form
		}
	}
	// The JSON is Brig's own if the text is that of a list or dictionary. For
	// IPython's own JSON, the text is "<IPython.core.display.JSON object>".
	if text := string(out["text/plain"]); strings.HasPrefix(text, `"[`) || strings.HasPrefix(text, `"{`) {
		delete(out, "application/json")
	}
	return out
}

// onDisplay reports a displayed value or an update to a displayed value.
func (run *codeExecution) onDisplay(v brig.Rich) error {
	if v.Main && run.silent {
		return nil
	}
	bundle := content{"data": run.selectForms(v.Data), "metadata": content{}}
	if len(v.Metadata) > 0 {
		bundle["metadata"] = v.Metadata
	}
	if v.Main {
		if err := run.flush(); err != nil {
			return err
		}
		bundle["execution_count"] = run.count
		return run.c.send(run.ctx, run.r, "iopub", "execute_result", bundle)
	}
	kind := "display_data"
	if v.Update {
		kind = "update_display_data"
	}
	transient := content{}
	if v.DisplayID != "" {
		transient["display_id"] = v.DisplayID
	}
	bundle["transient"] = transient
	return run.c.send(run.ctx, run.r, "iopub", kind, bundle)
}

// onClear reports that the code requested to clear its output.
func (run *codeExecution) onClear(wait bool) error {
	return run.c.send(run.ctx, run.r, "iopub", "clear_output", content{"wait": wait})
}
