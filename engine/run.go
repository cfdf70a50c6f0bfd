package engine

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/span"
	"github.com/brig-run/brig/interpreter"
)

const (
	workspaceDir = "/workspace"
	artifactsDir = workspaceDir + "/artifacts"
	// maxValue is the size of the largest value that main may return, in bytes
	// of JSON.
	maxValue = 8 * brig.MiB
	// runMargin is how much longer a one-shot's machine may live than its
	// program: time to start and to collect.
	runMargin = 2 * time.Minute
)

// Run implements brig.Service.
func (e *Engine) Run(ctx context.Context, p brig.Program, sio brig.IO) (_ *brig.Outcome, err error) {
	v, err := e.enter(ctx, brig.OpRun, "", func(v *visit) {
		if v.sayCode(p.Language, p.Code); len(p.Command) > 0 {
			v.sayCommand(brig.Command{Argv: p.Command})
		}
	})
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	job, err := e.plan(v, p)
	if err != nil {
		return nil, err
	}
	if err := e.checkEgress(v.actor, &job.spec.Egress); err != nil {
		return nil, err
	}
	if err := e.findSecrets(ctx, v.actor.Tenant, job.spec.Secrets); err != nil {
		return nil, err
	}
	if job.spec.Workspace, err = e.findWorkspace(ctx, v.actor.Tenant, job.spec); err != nil {
		return nil, err
	}
	way := errand{tenant: v.actor.Tenant, spec: &job.spec, place: p.Placement, program: true}
	stops, err := e.route(ctx, way)
	if err != nil {
		return nil, err
	}
	if o, err := e.compileProgram(ctx, p, job, sio); o != nil || err != nil {
		if err == nil {
			v.endedAs(o)
			err = v.store().PutRun(ctx, v.actor.Tenant, o)
		}
		return o, err
	}
	if err := e.screenProgram(ctx, v, job); err != nil {
		return nil, err
	}
	turn, err := v.account.begin(job.spec.Labels)
	if err != nil {
		return nil, err
	}
	defer turn.end()
	ctx, overTime := context.WithCancelCause(ctx)
	defer overTime(nil)
	turn.endsBy(overTime)
	var o *brig.Outcome
	err = e.travel(ctx, v, way, stops, func(s stop) (err error) {
		if s.at.runsOnly {
			o, err = e.runWhole(ctx, v, s, p, job, sio)
		} else {
			o, err = e.runAt(ctx, v, s, job, sio)
		}
		return err
	})
	if errors.Is(err, errUnbegun) {
		turn.undo()
	}
	return o, turn.verdict(err)
}

// errUnbegun is a cause of an error before which nothing of a program ran.
var errUnbegun = errors.New("nothing has begun")

// runAt runs a program in a machine of its own.
func (e *Engine) runAt(ctx context.Context, v *visit, s stop, job *job, sio brig.IO) (*brig.Outcome, error) {
	m, err := e.obtain(ctx, v, s, job.spec, job.wish())
	if err != nil {
		return nil, errors.Join(err, errUnbegun)
	}
	// Whatever happens from here on, the sandbox ends.
	var said spoken
	var o *brig.Outcome
	if err = e.carry(ctx, v, m, job); err == nil {
		v.begins()
		o, err = e.perform(ctx, m, job, said.hear(v.withhold(sio)))
	}
	failpoint.Hit("run.performed")
	if err == nil {
		e.keepRun(ctx, v, m, o)
	}
	switch lost := v.recorded(); {
	case err == nil:
		err = lost
	case ctx.Err() == nil:
		err = e.lost(ctx, m.rec, m.in, err)
	}
	m.at.hold() // until its machine is gone
	e.drop(m.rec.ID)
	if err != nil {
		e.undo(ctx, m)
		defer e.left(m.at)
		return nil, e.atFault(ctx, m, err, again(job, &said, sio))
	}
	o.Pool, o.Route = m.rec.Pool, m.rec.Route
	// Nobody can reach it any more, so nobody waits for that.
	v.endedAs(o)
	told := v.tells()
	e.discardSoon(ctx, m, func() {
		m.letGo()
		e.tellRun(ctx, told, m.in)
	})
	failpoint.Hit("run.discarded")
	v.sayResult(&o.Result)
	wctx, cancel := cleanup(ctx)
	defer cancel()
	if v.op != brig.OpRun { // what an administrator tries is not kept
		if err := v.store().Delete(wctx, m.rec.ID); err != nil {
			e.forget(ctx, m.rec)
			return nil, over(err)
		}
		return o, nil
	}
	if err := v.store().EndRun(wctx, m.rec.ID, v.actor.Tenant, remembered(o), v.outcome()); err != nil {
		e.forget(ctx, m.rec)
		return nil, over(err)
	}
	failpoint.Hit("run.ended")
	return o, nil
}

// GetRun implements brig.Service.
func (e *Engine) GetRun(ctx context.Context, name string) (_ *brig.Outcome, err error) {
	v, err := e.enter(ctx, brig.OpGetRun, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.findRun(ctx, v.actor.Tenant, name)
}

// findRun finds an outcome of a tenant's by its sandbox's name, alone or in the
// form {tenant}:{name}:{id}.
func (e *Engine) findRun(ctx context.Context, tenant, name string) (*brig.Outcome, error) {
	whose, called, id, scoped := brig.ParseScopedID(name)
	if !scoped {
		return e.Store.GetRun(ctx, tenant, name)
	}
	if whose == tenant {
		o, err := e.Store.GetRun(ctx, tenant, called)
		if err == nil && o.ID == id || err != nil && brig.KindOf(err) != brig.NotFound {
			return o, err
		}
	}
	// One that is not there is told about as the store does.
	_, err := e.Store.GetRun(ctx, tenant, name)
	return nil, err
}

// job is a program, translated into what a machine does.
type job struct {
	spec  brig.Spec
	cmd   brig.Command // the command, or how the interpreter is started
	lang  *interpreter.Language
	order interpreter.Order
	files []brig.File
	grace time.Duration // after the command's time, to end by itself
	// packages are requirements of a step, which are installed before it begins.
	packages []string
}

// wish says which machines are right for a job. The interpreter that waits in
// one belongs to the user; root needs one of its own.
func (j *job) wish() wish {
	if j.lang == nil {
		return wish{prefix: "sh-", kinds: []brig.Language{""}}
	}
	w := wish{prefix: j.lang.Prefix, kinds: []brig.Language{j.lang.Name}}
	if j.cmd.User == "root" {
		w.kinds = []brig.Language{""}
	}
	return w
}

// plan checks a program and translates it.
func (e *Engine) plan(v *visit, p brig.Program) (*job, error) {
	if (len(p.Command) == 0) == (p.Code == "" && p.Language == "") {
		return nil, brig.InvalidField("code", "give code with its language, or a command, and not both").
			WithHint(`for example {"language":"python","code":"print(6*7)"} or {"command":["uname","-a"]}`)
	}
	j := &job{files: p.Files, cmd: brig.Command{Argv: p.Command, User: p.User}}
	if len(p.Command) == 0 {
		if err := j.program(p); err != nil {
			return nil, err
		}
		if p.Step != nil {
			if err := e.step(j, p); err != nil {
				return nil, err
			}
		}
	} else if p.Step != nil {
		return nil, brig.InvalidField("step", "a command is no step").WithHint("give code in Python, or leave out step")
	} else if len(p.Arguments) > 0 {
		return nil, brig.InvalidField("arguments", "a command takes no arguments object").WithHint("put them into the command")
	}
	var err error
	if j.cmd.Timeout, err = v.bounds.FillTimeout("timeout_ms", p.Timeout); err != nil {
		return nil, err
	}
	switch {
	case p.Grace < 0 || p.Grace > maxGrace:
		return nil, brig.InvalidField("grace_ms", "%v is out of bounds", p.Grace).WithHint("give up to %v", maxGrace)
	case p.Grace > 0 && j.lang == nil:
		return nil, brig.InvalidField("grace_ms", "a command is killed when its time is over").WithHint("leave it out, or begin the command with timeout")
	}
	j.grace = min(p.Grace, max(0, v.bounds.MaxTimeout-j.cmd.Timeout))
	if err := checkCommand("env", j.cmd); err != nil {
		return nil, err
	}
	if err := checkFiles(p.Files); err != nil {
		return nil, err
	}
	j.spec, err = e.complete(v, brig.Spec{
		Name: p.Name, Image: p.Image, Env: maps.Clone(p.Env), Labels: p.Labels, Limits: p.Limits, Egress: p.Egress, Secrets: p.Secrets,
		Workspace: p.Workspace, Require: p.Require,
		TTL: min(j.cmd.Timeout+j.grace+runMargin, v.bounds.MaxTTL),
	})
	if err != nil {
		return nil, err
	}
	if len(j.packages) > 0 { // they may have to be installed first
		j.spec.TTL = min(j.spec.TTL+builderTTL, v.bounds.MaxTTL)
	}
	j.spec.Ephemeral, j.order.Env = true, j.spec.Env
	return j, nil
}

// program checks a program's code and arguments and makes an order of them.
func (j *job) program(p brig.Program) error {
	lang, err := languageOf(p.Language)
	if err != nil {
		return err
	}
	if p.Code == "" {
		return brig.InvalidField("code", "there is no code").WithHint("give the program's source")
	}
	for field, n := range map[string]int{"code": len(p.Code), "arguments": len(p.Arguments)} {
		if n > maxCode {
			return brig.InvalidField(field, "it is too long: %d bytes", n).WithHint("give at most %s; put data into files", brig.FormatBytes(maxCode))
		}
	}
	if len(p.Arguments) > 0 {
		if !lang.Values {
			return brig.InvalidField("arguments", "%s takes no arguments object", p.Language).WithHint("use env or files")
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(p.Arguments, &object); err != nil || object == nil {
			return brig.InvalidField("arguments", "they are not a JSON object").WithHint(`for example {"name":"World","count":3}`)
		}
	}
	j.lang, j.cmd.Argv = &lang, lang.Argv
	j.order = interpreter.Order{Op: "program", Code: p.Code, Arguments: p.Arguments, Artifacts: p.Artifacts}
	return nil
}

func languageOf(l brig.Language) (interpreter.Language, error) {
	if lang, ok := interpreter.Lookup(l); ok {
		return lang, nil
	}
	_, err := brig.ParseLanguage(string(l))
	if err == nil {
		err = brig.InvalidField("language", "unknown language %q", clip(string(l)))
	}
	return interpreter.Language{}, err
}

// perform does a job in its machine.
func (e *Engine) perform(ctx context.Context, m *machine, j *job, sio brig.IO) (_ *brig.Outcome, err error) {
	ctx, s := span.Start(ctx, "run")
	s.Set("brig.sandbox", string(m.rec.ID))
	s.Set("brig.provider", m.rec.Provider)
	defer func() { endStep(s, err) }()
	secrets, err := e.secretEnv(ctx, m.rec)
	if err != nil {
		return nil, err
	}
	// An interpreter that waited gets its environment with the order.
	j.cmd.Env, j.order.Env = secrets, layer(secrets, j.order.Env)
	if len(j.files) > 0 {
		if err := m.in.Put(ctx, workspaceDir, j.files); err != nil {
			return nil, err
		}
	}
	if j.lang == nil {
		res, err := e.execOnce(ctx, m, j.cmd, sio)
		if err != nil {
			return nil, err
		}
		o := &brig.Outcome{Result: *res, Sandbox: m.rec.Spec.Name, ID: m.rec.ID}
		o.Error = verdict(res)
		return o, e.collect(ctx, m.in, o)
	}
	if m.session == nil {
		if m.session, err = open(ctx, m.in, "interpreter", *j.lang, j.cmd); err != nil {
			return nil, notStarted(m.rec.Spec.Image, *j.lang, err)
		}
	}
	return e.interpret(ctx, m, j, sio)
}

// notStarted explains why an interpreter did not start: mostly the image has
// none.
func notStarted(image string, lang interpreter.Language, err error) error {
	missing := brig.InvalidField("language", "image %q has no %s", image, lang.Program).
		WithHint("choose an image that has it, or build one: brig image build debian --packages …").Because(err)
	said, failed := errors.AsType[*interpreter.StartError](err)
	switch {
	case brig.AsError(err).Field == "command":
		return missing
	case failed && said.Said != "" && errors.Is(err, interpreter.ErrGone):
		// What it said is the guest's own, and tells its owner most.
		missing.Message += ": " + clip(said.Said)
		return missing
	}
	return err
}

// collect takes the artifacts out of a machine that still lives.
func (e *Engine) collect(ctx context.Context, in brig.Instance, o *brig.Outcome) error {
	if o.OOMKilled || o.TimedOut {
		return nil
	}
	ctx, s := span.Start(ctx, "collect")
	defer s.End()
	files, skipped, err := in.Collect(ctx, artifactsDir)
	if err != nil && gone(in) {
		return nil // the program took its sandbox down with it
	}
	if err != nil {
		return err
	}
	o.Artifacts, o.Skipped = files, skipped
	return nil
}
