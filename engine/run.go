package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/brig-run/brig"
)

const (
	workspace    = "/workspace"
	artifactsDir = workspace + "/artifacts"
	// maxValue is the size of the largest value that main may return, in bytes
	// of JSON.
	maxValue = 8 * brig.MiB
	// runMargin is how much longer a one-shot's machine may live than its
	// program: time to start and to collect.
	runMargin = 2 * time.Minute
)

// Run implements brig.Service.
func (e *Engine) Run(ctx context.Context, p brig.Program, sio brig.IO) (_ *brig.Outcome, err error) {
	v, err := e.enter(ctx, brig.OpRun, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	job, err := e.plan(p)
	if err != nil {
		return nil, err
	}
	rec, in, err := e.create(ctx, v, job.spec)
	if err != nil {
		return nil, err
	}
	// Whatever happens from here on, the sandbox ends, and before the answer.
	o, err := e.perform(ctx, rec, in, job, sio)
	wctx, cancel := cleanup(ctx)
	defer cancel()
	if destroyErr := e.remove(wctx, rec); destroyErr != nil {
		return nil, errors.Join(err, destroyErr)
	}
	if err != nil {
		return nil, err
	}
	if err := e.Store.PutRun(wctx, v.actor.Tenant, o); err != nil {
		return nil, err
	}
	return o, nil
}

// GetRun implements brig.Service.
func (e *Engine) GetRun(ctx context.Context, name string) (_ *brig.Outcome, err error) {
	v, err := e.enter(ctx, brig.OpGetRun, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.Store.GetRun(ctx, v.actor.Tenant, name)
}

// job is a program, translated into what a machine does.
type job struct {
	spec  brig.Spec
	cmd   brig.Command
	lang  *language // nil for a plain command
	files []brig.File
	extra []brig.File // for driverDir
}

// plan checks a program and translates it.
func (e *Engine) plan(p brig.Program) (*job, error) {
	if (len(p.Command) == 0) == (p.Code == "" && p.Language == "") {
		return nil, brig.InvalidField("code", "give code with its language, or a command, and not both").
			WithHint(`for example {"language":"python","code":"print(6*7)"} or {"command":["uname","-a"]}`)
	}
	j := &job{files: p.Files, cmd: brig.Command{Argv: p.Command, User: p.User}}
	prefix := "sh-"
	if len(p.Command) == 0 {
		lang, err := e.language(p, j)
		if err != nil {
			return nil, err
		}
		j.lang, prefix, j.cmd.Argv = lang, lang.prefix, lang.argv
	} else if len(p.Arguments) > 0 {
		return nil, brig.InvalidField("arguments", "a command takes no arguments object").WithHint("put them into the command")
	}
	var err error
	if j.cmd.Timeout, err = e.Bounds.FillTimeout("timeout_ms", p.Timeout); err != nil {
		return nil, err
	}
	if err := checkCommand(j.cmd); err != nil {
		return nil, err
	}
	if err := checkFiles(p.Files); err != nil {
		return nil, err
	}
	j.spec, err = e.complete(brig.Spec{
		Name: p.Name, Image: p.Image, Env: maps.Clone(p.Env), Labels: p.Labels, Limits: p.Limits,
		TTL: min(j.cmd.Timeout+runMargin, e.Bounds.MaxTTL),
	})
	if err != nil {
		return nil, err
	}
	if j.spec.Name == "" {
		j.spec.Name = newName(prefix)
	}
	j.spec.Ephemeral = true
	return j, nil
}

func (e *Engine) language(p brig.Program, j *job) (*language, error) {
	lang, err := languageOf(p.Language)
	if err != nil {
		return nil, err
	}
	if p.Code == "" {
		return nil, brig.InvalidField("code", "there is no code").WithHint("give the program's source")
	}
	if len(p.Code) > maxCode || len(p.Arguments) > maxCode {
		return nil, brig.InvalidField("code", "the program is too long").WithHint("give at most %s; put data into files", brig.FormatBytes(maxCode))
	}
	j.extra = append(append(j.extra, lang.files...), brig.File{Path: lang.source, Data: []byte(p.Code)})
	if len(p.Arguments) > 0 {
		if !lang.values {
			return nil, brig.InvalidField("arguments", "%s takes no arguments object", p.Language).WithHint("use env or files")
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(p.Arguments, &object); err != nil || object == nil {
			return nil, brig.InvalidField("arguments", "they are not a JSON object").WithHint(`for example {"name":"World","count":3}`)
		}
		j.extra = append(j.extra, brig.File{Path: "arguments.json", Data: p.Arguments})
	}
	return &lang, nil
}

// perform does a job in its machine.
func (e *Engine) perform(ctx context.Context, rec *brig.Record, in brig.Instance, j *job, sio brig.IO) (*brig.Outcome, error) {
	for dir, files := range map[string][]brig.File{workspace: j.files, driverDir: j.extra} {
		if len(files) > 0 {
			if err := in.Put(ctx, dir, files); err != nil {
				return nil, err
			}
		}
	}
	var value limited
	if j.lang != nil && j.lang.values {
		sio.Result = &value
	}
	res, err := e.exec(ctx, rec, in, j.cmd, sio)
	if err != nil {
		if told := brig.AsError(err); j.lang != nil && told.Field == "command" {
			return nil, brig.InvalidField("language", "image %q has no %s", rec.Spec.Image, j.lang.program).
				WithHint("choose an image that has it, or build one: brig image build debian --packages …").Because(err)
		}
		return nil, err
	}
	o := &brig.Outcome{Result: *res, Sandbox: rec.Spec.Name}
	o.Value, o.Error = verdict(o, &value)
	return o, e.collect(ctx, in, o)
}

// collect takes the artifacts out of a machine that still lives.
func (e *Engine) collect(ctx context.Context, in brig.Instance, o *brig.Outcome) error {
	if o.OOMKilled || o.TimedOut {
		return nil
	}
	files, skipped, err := in.Collect(ctx, artifactsDir)
	if err != nil {
		select {
		case <-in.Done(): // the program took its sandbox down with it
			return nil
		default:
			return err
		}
	}
	o.Artifacts, o.Skipped = files, skipped
	return nil
}

// limited keeps what a program sends as its value, up to a bound.
type limited struct {
	bytes.Buffer
	over bool
}

// Write implements io.Writer; it never fails, so that the program goes on.
func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxValue {
		l.over = true
		return len(p), nil
	}
	return l.Buffer.Write(p)
}

// verdict says what the host, or else the program, says went wrong.
func verdict(o *brig.Outcome, value *limited) (json.RawMessage, *brig.ProgramError) {
	switch {
	case o.OOMKilled:
		return nil, &brig.ProgramError{
			Code: brig.OutOfMemory.Code(), Name: string(brig.OutOfMemory),
			Message: "the program used more memory than it may", Hint: "raise limits.memory",
		}
	case o.TimedOut:
		return nil, &brig.ProgramError{
			Code: brig.Timeout.Code(), Name: string(brig.Timeout),
			Message: fmt.Sprintf("the program did not end within its time (%v)", o.Duration.Round(time.Millisecond)),
			Hint:    "raise timeout_ms",
		}
	case value.over:
		return nil, &brig.ProgramError{
			Name: "ValueTooLarge", Message: "main returned more than " + brig.FormatBytes(maxValue) + " of JSON",
			Hint: "write large results to files in artifacts/",
		}
	case value.Len() == 0:
		return nil, nil
	}
	var answer struct {
		Value json.RawMessage
		Error *brig.ProgramError
	}
	if err := json.Unmarshal(value.Bytes(), &answer); err != nil {
		return nil, &brig.ProgramError{Name: "ValueCorrupted", Message: "what came back as the value is not whole JSON", Hint: "do not write to descriptor 3"}
	}
	if answer.Error != nil {
		answer.Error.Code, answer.Error.Hint = "", "" // those are the host's to give
	}
	return answer.Value, answer.Error
}
