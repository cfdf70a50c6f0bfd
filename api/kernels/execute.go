package kernels

import (
	"context"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// execute has the kernel run code, and tells of it. An error ends the
// connection; what goes wrong with the code is told, as is what the service has
// against it.
func (c *channel) execute(ctx context.Context, r *request, x *execution) error {
	run := &running{c: c, ctx: ctx, r: r, silent: x.Silent, code: *x.Code}
	source := run.code
	if source == "" {
		source = "\n" // to do nothing is allowed here
	}
	end, err := c.k.execute(ctx, source, teller{begins: run.begins, stream: run.stream, shows: run.shows})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil {
		err = run.rest()
	} else {
		end, err = &ended{run.count, c.excuse(err)}, run.rest()
	}
	if err != nil {
		return err
	}
	reply := content{"status": "ok", "execution_count": end.count, "user_expressions": unasked(x), "payload": []string{}}
	if e := end.error; e != nil {
		failure := content{"ename": e.Name, "evalue": e.Value, "traceback": lines(e)}
		if err := c.send(ctx, r, "iopub", "error", failure); err != nil {
			return err
		}
		for k, v := range failure {
			reply[k] = v
		}
		reply["status"] = "error"
	}
	return c.send(ctx, r, "shell", "execute_reply", reply)
}

// unasked says of each expression that it was not evaluated.
func unasked(x *execution) content {
	out := content{}
	for _, name := range x.Expressions {
		out[name] = content{"status": "error", "ename": "NotImplementedError", "evalue": "user_expressions are not evaluated here", "traceback": []string{}}
	}
	return out
}

// lines are those of an error's traceback: clients show nothing else.
func lines(e *brig.CodeError) []string {
	text := strings.TrimRight(e.Traceback, "\n")
	if text == "" {
		text = strings.TrimSuffix(e.Name+": "+e.Value, ": ")
	}
	return strings.Split(text, "\n")
}

// running is code that runs for a client.
type running struct {
	c        *channel
	ctx      context.Context
	r        *request
	silent   bool
	code     string
	count    int
	out, err door.Text
}

// begins tells that the code's turn has come.
func (run *running) begins(count int) error {
	run.count = count
	if run.silent {
		return nil
	}
	return run.c.send(run.ctx, run.r, "iopub", "execute_input", content{"code": run.code, "execution_count": count})
}

// stream tells of output, in whole characters.
func (run *running) stream(name string, p []byte) error {
	text := run.out.Add
	if name == "stderr" {
		text = run.err.Add
	}
	return run.say(name, text(p))
}

func (run *running) say(name, text string) error {
	if text == "" {
		return nil
	}
	return run.c.send(run.ctx, run.r, "iopub", "stream", content{"name": name, "text": text})
}

// rest tells of what was held back.
func (run *running) rest() error {
	if err := run.say("stdout", run.out.Flush()); err != nil {
		return err
	}
	return run.say("stderr", run.err.Flush())
}

// shows tells of a value.
func (run *running) shows(v brig.Rich) error {
	if v.Main && run.silent {
		return nil
	}
	if !v.Main {
		return run.c.send(run.ctx, run.r, "iopub", "display_data", content{"data": v.Data, "metadata": content{}, "transient": content{}})
	}
	if err := run.rest(); err != nil {
		return err
	}
	return run.c.send(run.ctx, run.r, "iopub", "execute_result", content{"data": v.Data, "metadata": content{}, "execution_count": run.count})
}
