package servicetest

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func (h Harness) testRefusals(t *testing.T) {
	t.Run("sandboxes", h.testBadSpecs)
	t.Run("commands", h.testBadCommands)
	t.Run("programs", h.testBadPrograms)
	t.Run("missing", func(t *testing.T) { h.checkMissing(h.Context(t), t, h.Service, "no-such-sandbox") })
}

func (h Harness) testBadSpecs(t *testing.T) {
	mark := map[string]string{"mark": name()}
	for what, c := range map[string]struct {
		spec  brig.Spec
		field string
	}{
		"negative memory":    {brig.Spec{Limits: brig.Limits{Memory: -1}}, "limits.memory"},
		"too much memory":    {brig.Spec{Limits: brig.Limits{Memory: math.MaxInt64}}, "limits.memory"},
		"negative cpus":      {brig.Spec{Limits: brig.Limits{CPUs: -1}}, "limits.cpus"},
		"NaN cpus":           {brig.Spec{Limits: brig.Limits{CPUs: math.NaN()}}, "limits.cpus"},
		"infinite cpus":      {brig.Spec{Limits: brig.Limits{CPUs: math.Inf(1)}}, "limits.cpus"},
		"negative processes": {brig.Spec{Limits: brig.Limits{Processes: -1}}, "limits.processes"},
		"too many processes": {brig.Spec{Limits: brig.Limits{Processes: math.MaxInt32}}, "limits.processes"},
		"negative files":     {brig.Spec{Limits: brig.Limits{OpenFiles: -1}}, "limits.open_files"},
		"too much disk":      {brig.Spec{Limits: brig.Limits{Disk: math.MaxInt64}}, "limits.disk"},
		"too little output":  {brig.Spec{Limits: brig.Limits{Output: 1}}, "limits.output"},
		"negative TTL":       {brig.Spec{TTL: -time.Second}, "ttl_ms"},
		"too long a TTL":     {brig.Spec{TTL: 1e6 * time.Hour}, "ttl_ms"},
		"upper case":         {brig.Spec{Name: "Upper"}, "name"},
		"a dash first":       {brig.Spec{Name: "-x"}, "name"},
		"a path":             {brig.Spec{Name: "../x"}, "name"},
		"too long a name":    {brig.Spec{Name: strings.Repeat("a", 64)}, "name"},
		"unknown image":      {brig.Spec{Image: "no-such-image"}, "image"},
		"unknown user":       {brig.Spec{Command: &brig.Command{Argv: h.argv("echo"), User: "daemon"}}, "user"},
		"bad variable":       {brig.Spec{Env: map[string]string{"A=B": "c"}}, "env"},
	} {
		t.Run(what, func(t *testing.T) {
			c.spec.Labels = mark
			_, err := h.Service.Create(h.Context(t), c.spec)
			wantField(t, "Create", err, c.field)
			if e := brig.AsError(err); e != nil && e.Hint == "" {
				t.Errorf("error %v has no hint", err)
			}
		})
	}
	page, err := h.Service.List(h.Context(t), brig.ListOptions{Labels: mark})
	if err != nil || len(page.Sandboxes) > 0 {
		t.Errorf("after all refusals List = %+v, %v; want none", page, err)
	}
}

func (h Harness) testBadCommands(t *testing.T) {
	box := h.sandbox(t, brig.Spec{})
	for what, c := range map[string]struct {
		cmd   brig.Command
		field string
	}{
		"neither":           {brig.Command{}, "command"},
		"both":              {brig.Command{Argv: h.argv("echo"), Shell: "true"}, "command"},
		"relative dir":      {brig.Command{Argv: h.argv("echo"), Dir: "tmp"}, "cwd"},
		"unknown user":      {brig.Command{Argv: h.argv("echo"), User: "daemon"}, "user"},
		"root by its IDs":   {brig.Command{Argv: h.argv("echo"), User: "0:0"}, "user"},
		"the agent's user":  {brig.Command{Argv: h.argv("echo"), User: "64999:1"}, "user"},
		"the agent's group": {brig.Command{Argv: h.argv("echo"), User: "1:64999"}, "user"},
		"too large IDs":     {brig.Command{Argv: h.argv("echo"), User: "65536:1"}, "user"},
		"no group":          {brig.Command{Argv: h.argv("echo"), User: "1234"}, "user"},
		"negative timeout":  {brig.Command{Argv: h.argv("echo"), Timeout: -time.Second}, "timeout_ms"},
		"too long timeout":  {brig.Command{Argv: h.argv("echo"), Timeout: 1e6 * time.Hour}, "timeout_ms"},
		"NUL":               {brig.Command{Argv: []string{"echo", "a\x00b"}}, "command[1]"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := h.Service.Exec(h.Context(t), box.Spec.Name, c.cmd, brig.IO{})
			wantField(t, "Exec", err, c.field)
		})
	}
	if xs, err := h.Service.ListExecs(h.Context(t), box.Spec.Name); err != nil || len(xs) > 0 {
		t.Errorf("after all refusals ListExecs = %d executions, %v; want none", len(xs), err)
	}
}

func (h Harness) testBadPrograms(t *testing.T) {
	echo := h.argv("echo", "hi")
	for what, c := range map[string]struct {
		program brig.Program
		fields  []string
	}{
		"nothing":           {brig.Program{}, []string{"code", "command", "language"}},
		"both":              {brig.Program{Language: brig.Python, Code: "1", Command: echo}, []string{"code", "command"}},
		"unknown language":  {brig.Program{Language: "cobol", Code: "x"}, []string{"language"}},
		"unknown image":     {brig.Program{Command: echo, Image: "no-such-image"}, []string{"image"}},
		"bad name":          {brig.Program{Command: echo, SandboxName: "A"}, []string{"name"}},
		"negative memory":   {brig.Program{Command: echo, Limits: brig.Limits{Memory: -1}}, []string{"limits.memory"}},
		"negative timeout":  {brig.Program{Command: echo, Timeout: -1}, []string{"timeout_ms"}},
		"negative grace":    {brig.Program{Language: brig.Python, Code: "1", Grace: -time.Second}, []string{"grace_ms"}},
		"too long a grace":  {brig.Program{Language: brig.Python, Code: "1", Grace: time.Hour}, []string{"grace_ms"}},
		"a command's grace": {brig.Program{Command: echo, Grace: time.Second}, []string{"grace_ms"}},
		"a file outside":    {brig.Program{Command: echo, Files: []brig.File{{Path: "../x"}}}, []string{"files[0].path"}},
		"arguments no JSON": {brig.Program{Language: brig.Python, Code: "1", Arguments: []byte("{")}, []string{"arguments"}},
		"arguments a list":  {brig.Program{Language: brig.Python, Code: "1", Arguments: []byte("[]")}, []string{"arguments"}},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := h.Service.Run(h.Context(t), c.program, brig.IO{})
			wantField(t, "Run", err, c.fields...)
		})
	}
}

// checkMissing checks that every operation returns NotFound for a sandbox.
func (h Harness) checkMissing(ctx context.Context, t *testing.T, svc brig.Service, box string) {
	t.Helper()
	_, err := svc.Get(ctx, box)
	wantKind(t, "Get", err, brig.NotFound)
	_, err = svc.Exec(ctx, box, h.cmd("echo"), brig.IO{})
	wantKind(t, "Exec", err, brig.NotFound)
	_, err = svc.GetExec(ctx, box, "ex1")
	wantKind(t, "GetExec", err, brig.NotFound)
	_, err = svc.ListExecs(ctx, box)
	wantKind(t, "ListExecs", err, brig.NotFound)
	_, err = svc.Usage(ctx, box)
	wantKind(t, "Usage", err, brig.NotFound)
	_, err = svc.Logs(ctx, box, brig.LogOptions{})
	wantKind(t, "Logs", err, brig.NotFound)
	_, err = svc.Extend(ctx, box, time.Minute)
	wantKind(t, "Extend", err, brig.NotFound)
	_, err = svc.Attest(ctx, box)
	wantKind(t, "Attest", err, brig.NotFound)
	_, err = svc.Stop(ctx, box, 0)
	wantKind(t, "Stop", err, brig.NotFound)
	_, err = svc.Kill(ctx, box)
	wantKind(t, "Kill", err, brig.NotFound)
	wantKind(t, "Remove", svc.Remove(ctx, box), brig.NotFound)
	_, err = svc.GetRun(ctx, box)
	wantKind(t, "GetRun", err, brig.NotFound)
	_, err = svc.CreateContext(ctx, box, brig.ContextSpec{})
	wantKind(t, "CreateContext", err, brig.NotFound)
	_, err = svc.Contexts(ctx, box)
	wantKind(t, "Contexts", err, brig.NotFound)
	_, err = svc.RunCode(ctx, box, brig.Code{Source: "1"}, nil)
	wantKind(t, "RunCode", err, brig.NotFound)
	wantKind(t, "InterruptContext", svc.InterruptContext(ctx, box, "default-python"), brig.NotFound)
	_, err = svc.RestartContext(ctx, box, "default-python")
	wantKind(t, "RestartContext", err, brig.NotFound)
	wantKind(t, "RemoveContext", svc.RemoveContext(ctx, box, "default-python"), brig.NotFound)
}
