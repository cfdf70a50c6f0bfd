package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/output"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/span"
	"github.com/brig-run/brig/interpreter"
)

// runs is the part of the engine that runs programs in their own sandboxes.
type runs struct {
	*gate
	vault        *vault
	images       *images
	providers    *providers
	workspaces   *workspaces
	volumes      *volumes
	lifecycle    *lifecycle
	programs     *programs
	interpreters *interpreters
	machines     *machines
	tools        *tools
}

const (
	workspaceDir = "/workspace"
	artifactsDir = workspaceDir + "/artifacts"
	// maxValue is the maximum size of the value that main returns, in bytes of
	// JSON.
	maxValue = 8 * brig.MiB
	// runMargin is the time that a one-shot's lease allows beyond its program's timeout, for the
	// start and the collection of artifacts.
	runMargin = 2 * time.Minute
)

// Run implements brig.Service.
func (rs *runs) Run(ctx context.Context, p brig.Program, sio brig.IO) (*brig.Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outputRelay, sio := rs.relays.Wrap(brig.ActorFrom(ctx).Tenant, sio, cancel)
	o, err := rs.run(ctx, p, sio, outputRelay)
	if unread := outputRelay.Flush(); err == nil {
		err = unread
	}
	return o, err
}

// run implements Run, with the caller's streams already wrapped by outputRelay.
func (rs *runs) run(ctx context.Context, p brig.Program, sio brig.IO, outputRelay *output.Relay) (*brig.Outcome, error) {
	return doWithDetails(ctx, rs.gate, brig.OpRun, "", func(v *call) {
		if v.addCode(p.Language, p.Code); len(p.Command) > 0 {
			v.addCommand(brig.Command{Argv: p.Command})
		}
	}, func(v *call) (_ *brig.Outcome, err error) {
		job, err := rs.plan(v, p)
		if err != nil {
			return nil, err
		}
		if err := rs.machines.admitSpec(ctx, v, &job.spec); err != nil {
			return nil, err
		}
		done, err := rs.volumes.admitMounts(ctx, v, &job.spec)
		if err != nil {
			return nil, err
		}
		defer done()
		placement := placementRequest{tenant: v.actor.Tenant, spec: &job.spec, constraints: p.Placement, isRun: true}
		candidates, err := rs.providers.route(ctx, placement)
		if err != nil {
			return nil, err
		}
		if o, err := rs.interpreters.compileProgram(ctx, p, job, sio); o != nil || err != nil {
			if err == nil {
				v.setOutcome(o)
				err = rs.putUncharged(ctx, v, o)
				rs.lifecycle.trimSoon(ctx, v.actor.Tenant)
			}
			return o, err
		}
		if err := rs.interpreters.screenProgram(ctx, v, job); err != nil {
			return nil, err
		}
		reservation, err := v.account.ReserveExec(job.spec.Labels)
		if err != nil {
			return nil, err
		}
		defer reservation.Release()
		v.reservations = append(v.reservations, reservation)
		ctx, overTime := context.WithCancelCause(ctx)
		defer overTime(nil)
		reservation.SetStopFunc(overTime)
		var o *brig.Outcome
		err = rs.providers.dispatch(ctx, v, placement, candidates, func(s candidate) (err error) {
			if s.backend.RunsOnly {
				o, err = rs.runAtRunner(ctx, v, s, p, job, sio)
			} else {
				o, err = rs.runAt(ctx, v, s, job, sio, outputRelay)
			}
			return err
		})
		if errors.Is(err, errNotStarted) {
			reservation.Cancel()
		}
		return o, reservation.ResultError(err)
	})
}

// errNotStarted is joined to errors that occurred before the program started.
var errNotStarted = errors.New("nothing has begun")

// runAt runs a program in its own sandbox with one provider.
func (rs *runs) runAt(ctx context.Context, v *call, s candidate, job *job, sio brig.IO, outputRelay *output.Relay) (*brig.Outcome, error) {
	m, err := rs.machines.acquire(ctx, v, s, job.spec, job.requirements())
	if err != nil {
		return nil, errors.Join(err, errNotStarted)
	}
	defer m.releaseSlot()
	// From here on, the sandbox ends on every path.
	var written outputFlag
	var o *brig.Outcome
	if err = rs.restorePackages(ctx, v, m, job); err == nil {
		v.markStarted()
		o, err = rs.runJob(ctx, m, job, written.watch(v.holdOutput(sio)), outputRelay)
	}
	failpoint.Hit("run.performed")
	if err == nil {
		rs.workspaces.writeBackRun(ctx, v, m, o)
	} else if ctx.Err() != nil {
		rs.workspaces.writeBackCanceled(ctx, v, m)
	}
	switch lost := v.awaitIntent(); {
	case err == nil:
		err = lost
	case ctx.Err() == nil:
		err = rs.lifecycle.explainLoss(ctx, m.rec, m.in, err)
	}
	m.backend.Retain() // released when the instance is destroyed
	rs.lifecycle.unregister(m.rec.ID)
	if err != nil {
		rs.machines.rollback(ctx, m)
		defer rs.releaseBackend(m.backend)
		return nil, rs.mapProviderError(ctx, m, err, canRunAgain(job, &written, sio))
	}
	o.Pool, o.Route = m.rec.Pool, m.rec.Route
	if m.img != nil && m.img.Alias != "" {
		o.Image = m.rec.Spec.Image
	}
	v.setOutcome(o)
	logged := v.executionForLog()
	// The instance outlives its record, and uses the volumes until its end.
	releaseVolumes := rs.volumes.hold(m.rec.Spec.Volumes)
	err = rs.storeOutcome(ctx, v, m.rec, o)
	// No caller can reach the instance anymore, so it is destroyed in the background. This begins
	// only now, because it would slow down the writes above.
	rs.machines.destroyLater(ctx, m, func() {
		m.closeUnusedSession()
		rs.logRun(ctx, logged, m.in)
	}, releaseVolumes)
	failpoint.Hit("run.discarded")
	if err != nil {
		return nil, withoutRetry(err)
	}
	return o, nil
}

// storeOutcome replaces the record of a run's sandbox by the run's outcome.
func (rs *runs) storeOutcome(ctx context.Context, v *call, rec *brig.Record, o *brig.Outcome) (err error) {
	v.addResult(&o.Result)
	wctx, cancel := detachedContext(ctx)
	defer cancel()
	stored := v.op == brig.OpRun // the outcome of an administrator's test is not stored
	if stored {
		err = v.store().EndRun(wctx, rec.ID, v.actor.Tenant, withoutState(o), v.outcomeEvent())
	} else {
		err = v.store().Delete(wctx, rec.ID)
	}
	if err != nil {
		rs.deleteRecord(ctx, rec)
		return err
	}
	failpoint.Hit("run.ended")
	if stored {
		rs.lifecycle.trimSoon(wctx, v.actor.Tenant)
	}
	return nil
}

// Runs implements brig.Service.
func (rs *runs) Runs(ctx context.Context, o brig.RunOptions) (*brig.RunPage, error) {
	return do(ctx, rs.gate, brig.OpRuns, "", func(v *call) (*brig.RunPage, error) {
		for _, s := range o.Statuses {
			if !slices.Contains(brig.OutcomeStatuses, s) {
				return nil, brig.InvalidField("status", "no run has the status %q", brig.Clip(string(s), 40)).WithHint("use one of success, error, timeout and out_of_memory")
			}
		}
		return rs.Store.ListRuns(ctx, v.actor.Tenant, o)
	})
}

// GetRun implements brig.Service.
func (rs *runs) GetRun(ctx context.Context, name string) (*brig.Outcome, error) {
	return do(ctx, rs.gate, brig.OpGetRun, "", func(v *call) (*brig.Outcome, error) {
		return rs.findRun(ctx, v.actor.Tenant, name)
	})
}

// findRun finds a tenant's outcome by the name of its sandbox, or by
// {tenant}:{name}:{id}.
func (rs *runs) findRun(ctx context.Context, tenant, name string) (*brig.Outcome, error) {
	tenantName, sandboxName, id, scoped := brig.ParseScopedID(name)
	if !scoped {
		return rs.Store.GetRun(ctx, tenant, name)
	}
	if tenantName == tenant {
		o, err := rs.Store.GetRun(ctx, tenant, sandboxName)
		if err == nil && o.ID == id || err != nil && brig.KindOf(err) != brig.NotFound {
			return o, err
		}
	}
	// Return the store's own error for a missing outcome.
	_, err := rs.Store.GetRun(ctx, tenant, name)
	return nil, err
}

// job is a program, translated into operations on an instance.
type job struct {
	spec    brig.Spec
	cmd     brig.Command // the command, or the command that starts the interpreter
	lang    *interpreter.Language
	request interpreter.Request
	files   []brig.File
	grace   time.Duration // time to exit after the command's timeout
	// packages are a step's requirements, installed before the step starts.
	packages []string
}

// requirements returns the requirements for a job's instance. An idle interpreter runs as the
// default user and with the default environment, so a program needs a new interpreter if it runs as
// another user or sets variables that are read at the start.
func (j *job) requirements() requirements {
	if j.lang == nil {
		return requirements{prefix: "sh-", languages: []brig.Language{""}}
	}
	w := requirements{prefix: j.lang.Prefix, languages: []brig.Language{j.lang.Name}}
	if !brig.IsDefaultUser(j.cmd.User) || interpreter.NeedsAtStart(j.lang.Name, j.variables()) {
		w.languages = []brig.Language{""}
	}
	return w
}

// variables returns the names of the program's variables that an idle interpreter does not have.
// Its driver handles PYTHONPATH.
func (j *job) variables() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range withCA(j.spec) {
			if name != "PYTHONPATH" && !yield(name) {
				return
			}
		}
		for _, s := range j.spec.Secrets {
			if !yield(s.Variable()) {
				return
			}
		}
	}
}

// plan checks a program and translates it.
func (rs *runs) plan(v *call, p brig.Program) (*job, error) {
	if (len(p.Command) == 0) == (p.Code == "" && p.Language == "") {
		return nil, brig.InvalidField("code", "give code with its language, or a command, and not both").
			WithHint(`for example {"language":"python","code":"print(6*7)"} or {"command":["uname","-a"]}`)
	}
	j := &job{files: p.Files, cmd: brig.Command{Argv: p.Command, User: p.User}}
	if len(p.Command) == 0 {
		if err := j.setProgram(p); err != nil {
			return nil, err
		}
		if p.Step != nil {
			if err := rs.setStep(j, p); err != nil {
				return nil, err
			}
		}
	} else if p.Step != nil {
		return nil, brig.InvalidField("step", "a command cannot be a step").WithHint("give code in Python, or leave out step")
	} else if len(p.Arguments) > 0 {
		return nil, brig.InvalidField("arguments", "a command does not accept an arguments object").WithHint("put them into the command")
	}
	var err error
	if j.cmd.Timeout, err = v.limitRange.FillTimeout("timeout_ms", p.Timeout); err != nil {
		return nil, err
	}
	switch {
	case p.Grace < 0 || p.Grace > maxGrace:
		return nil, brig.InvalidField("grace_ms", "%v is out of bounds", p.Grace).WithHint("give up to %v", maxGrace)
	case p.Grace > 0 && j.lang == nil:
		return nil, brig.InvalidField("grace_ms", "a command is killed at its timeout").WithHint("leave it out, or begin the command with timeout")
	}
	j.grace = min(p.Grace, max(0, v.limitRange.MaxTimeout-j.cmd.Timeout))
	if err := checkCommand("env", j.cmd); err != nil {
		return nil, err
	}
	if err := checkFiles(p.Files); err != nil {
		return nil, err
	}
	j.spec, err = rs.images.completeSpec(v, brig.Spec{
		Name: p.SandboxName, Image: p.Image, Env: maps.Clone(p.Env), Labels: p.Labels, Limits: p.Limits, Egress: p.Egress, Secrets: p.Secrets,
		Workspace: p.Workspace, Volumes: p.Volumes, Require: p.Require,
		TTL: min(j.cmd.Timeout+j.grace+runMargin, v.limitRange.MaxTTL),
	})
	if err != nil {
		return nil, err
	}
	if len(j.packages) > 0 { // they may have to be installed first
		j.spec.TTL = min(j.spec.TTL+builderTTL, v.limitRange.MaxTTL)
	}
	j.spec.Ephemeral, j.request.Env = true, withCA(j.spec)
	return j, nil
}

// setProgram checks a program's code and arguments, and sets the request for the
// interpreter.
func (j *job) setProgram(p brig.Program) error {
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
			return brig.InvalidField("arguments", "%s does not accept an arguments object", p.Language).WithHint("use env or files")
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(p.Arguments, &object); err != nil || object == nil {
			return brig.InvalidField("arguments", "the value is not a JSON object").WithHint(`for example {"name":"World","count":3}`)
		}
	}
	j.lang, j.cmd.Argv = &lang, lang.Argv
	j.request = interpreter.Request{Op: "program", Code: p.Code, Arguments: p.Arguments, Artifacts: p.Artifacts}
	return nil
}

func languageOf(l brig.Language) (interpreter.Language, error) {
	if lang, ok := interpreter.Lookup(l); ok {
		return lang, nil
	}
	_, err := brig.ParseLanguage(string(l))
	if err == nil {
		err = brig.InvalidField("language", "unknown language %q", truncate(string(l)))
	}
	return interpreter.Language{}, err
}

// runJob runs a job in its sandbox.
func (rs *runs) runJob(ctx context.Context, m *machine, j *job, sio brig.IO, outputRelay *output.Relay) (_ *brig.Outcome, err error) {
	ctx, s := span.Start(ctx, "run")
	s.Set("brig.sandbox", string(m.rec.ID))
	s.Set("brig.provider", m.rec.Provider)
	defer func() { endStep(s, err) }()
	secrets, err := rs.vault.secretEnv(ctx, m.rec)
	if err != nil {
		return nil, err
	}
	// A waiting interpreter receives its environment with the request.
	j.cmd.Env, j.request.Env = secrets, mergeEnv(secrets, j.request.Env)
	if len(j.files) > 0 {
		if err := m.in.Put(ctx, workspaceDir, j.files); err != nil {
			return nil, err
		}
	}
	if j.lang == nil {
		m.releaseSlot()
		res, err := rs.programs.execOnce(ctx, m, j.cmd, sio, outputRelay)
		if err != nil {
			return nil, err
		}
		o := &brig.Outcome{Result: *res, Sandbox: m.rec.Spec.Name, ID: m.rec.ID}
		o.Error = observedError(res)
		return o, rs.interpreters.collectArtifacts(ctx, m.in, o)
	}
	if m.session == nil {
		if m.session, err = rs.openSession(ctx, m.in, m.rec.Tenant, "interpreter", *j.lang, j.cmd); err != nil {
			return nil, notStartedError(m.rec.Spec.Image, *j.lang, err)
		}
	}
	m.releaseSlot()
	outputRelay.SetEndCheck(func() bool { return m.session.HasEnded() || hasEnded(m.in) })
	return rs.interpreters.interpret(ctx, m, j, sio)
}

// notStartedError explains why an interpreter did not start. Usually, the image does not contain
// the interpreter.
func notStartedError(image string, lang interpreter.Language, err error) error {
	missing := brig.InvalidField("language", "image %q has no %s", image, lang.Program).
		WithHint("choose an image that has it, or build one: brig image build debian --packages …").Because(err)
	startErr, failed := errors.AsType[*interpreter.StartError](err)
	switch {
	case brig.AsError(err).Field == "command":
		return missing
	case failed && startErr.Stderr != "" && errors.Is(err, interpreter.ErrGone):
		// The output comes from the guest, but is the most helpful information for the owner.
		missing.Message += ": " + truncate(startErr.Stderr)
		return missing
	}
	return err
}

// putUncharged stores the outcome of a program without a reservation in its
// tenant's quota.
func (rs *runs) putUncharged(ctx context.Context, v *call, o *brig.Outcome) error {
	done, err := v.account.lockRecords(ctx)
	if err != nil {
		return err
	}
	defer done()
	return v.store().PutRun(ctx, v.actor.Tenant, o)
}

// Limits on the input files of a program.
const (
	maxFiles         = 1000
	maxTotalFileSize = 64 * brig.MiB // bytes of all files together
)

func checkFiles(files []brig.File) error {
	if len(files) > maxFiles {
		return brig.InvalidField("files", "%d files are too many", len(files)).WithHint("give at most %d", maxFiles)
	}
	size := 0
	for i, f := range files {
		size += len(f.Data)
		clean := path.Clean(f.Path)
		if f.Path == "" || clean == "." || path.IsAbs(f.Path) || clean == ".." || strings.HasPrefix(clean, "../") ||
			strings.ContainsRune(f.Path, 0) || len(f.Path) > 1024 || strings.HasSuffix(f.Path, "/") {
			return brig.InvalidField(fmt.Sprintf("files[%d].path", i), "%q cannot be a file in %s", truncate(f.Path), workspaceDir).
				WithHint("give a path relative to it that stays inside, for example data/in.csv")
		}
		if f.Mode > 0o777 {
			return brig.InvalidField(fmt.Sprintf("files[%d].mode", i), "%o is not a file's mode", f.Mode).WithHint("give permission bits, for example 0644 (420)")
		}
	}
	if size > maxTotalFileSize {
		return brig.InvalidField("files", "%d bytes are too many", size).WithHint("give at most %s", brig.FormatBytes(maxTotalFileSize))
	}
	return nil
}
