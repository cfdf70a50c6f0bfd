package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/tool"
)

// tools runs agents' tools, and keeps their setups, variables and sandboxes.
type tools struct {
	*gate
	vault        *vault
	images       *images
	providers    *providers
	lifecycle    *lifecycle
	interpreters *interpreters
	machines     *machines
	boxes        boxes
}

// ToolOptions configures how tools run.
type ToolOptions struct {
	// Image is the image of boxes whose setup names no template. Default
	// brig.HostImage.
	Image string
	// Egress lists the hosts that tools may connect to. Default: none.
	Egress brig.Egress
	// Layers caches installed packages. If it is nil, packages cannot be
	// installed.
	Layers *tool.LayerCache
	// Index is the source of packages, and PackageEgress lists the hosts from
	// which they may be fetched.
	Index         tool.Index
	PackageEgress brig.Egress
}

// toolTimeout is the default timeout of a tool.
const toolTimeout = 3 * time.Minute

// toolJob is a call of a tool, translated into operations on a box.
type toolJob struct {
	tool        brig.Tool
	setup       tool.Setup
	fingerprint string
	key         string // the key of suitable boxes
	env         map[string]string
	request     tool.DriverRequest
	layers      []toolLayer
}

// toolLayer is a set of packages and its origin.
type toolLayer struct {
	tool.Layer
	fromTool bool // whether the tool requested it, rather than the setup
}

// RunTool implements brig.Service.
func (ts *tools) RunTool(ctx context.Context, t brig.Tool) (*brig.ToolResult, error) {
	return doWithDetails(ctx, ts.gate, brig.OpRunTool, "", func(v *call) {
		v.addCode(cmp.Or(t.Language, brig.Python), t.Source)
		v.addDetail(brig.DetailName, truncate(t.Name))
	}, func(v *call) (*brig.ToolResult, error) {
		j, err := ts.planTool(ctx, v, t)
		if err != nil {
			return nil, err
		}
		if res, err := ts.compileTool(ctx, j); res != nil || err != nil {
			return res, err
		}
		if ts.interpreters.isScreened(v) {
			if err := ts.interpreters.screenSource(ctx, v, j.tool.Language, j.request.Source); err != nil {
				return nil, err
			}
		}
		reservation, err := v.account.ReserveExec(nil)
		if err != nil {
			return nil, err
		}
		defer reservation.Release()
		v.reservations = append(v.reservations, reservation)
		ctx, overTime := context.WithCancelCause(ctx)
		defer overTime(nil)
		reservation.SetStopFunc(overTime)
		b, failed, err := ts.acquireBox(ctx, v, j)
		if err != nil {
			return nil, reservation.ResultError(err)
		}
		if failed != nil { // the packages could not be installed
			v.setEnd(0, 1, false, false, true)
			return j.failed(failed), nil
		}
		res, sound, err := ts.callTool(ctx, v, b, j)
		b.release()
		ts.releaseBox(ctx, b.box, sound)
		if err != nil {
			return nil, reservation.ResultError(err)
		}
		v.setEnd(res.Duration, res.ExitCode, res.TimedOut, false, res.Error != nil)
		return res, nil
	})
}

// planTool checks a call and translates it into a job.
func (ts *tools) planTool(ctx context.Context, v *call, t brig.Tool) (*toolJob, error) {
	t.Language = cmp.Or(t.Language, brig.Python)
	t.Limit = cmp.Or(t.Limit, brig.DefaultToolText)
	switch {
	case t.Language != brig.Python && t.Language != brig.TypeScript:
		return nil, brig.InvalidField("source_type", "tools are not written in %q", truncate(string(t.Language))).WithHint("use python or typescript")
	case strings.TrimSpace(t.Source) == "":
		return nil, brig.InvalidField("source_code", "there is no source").WithHint("give the source of a function")
	case len(t.Source) > maxCode || len(t.Arguments) > maxCode || len(t.State) > maxCode:
		return nil, brig.InvalidField("source_code", "the call is too long").WithHint("give at most %s of source, arguments and state each", brig.FormatBytes(maxCode))
	case t.Limit < 1 || t.Limit > brig.MaxToolText:
		return nil, brig.InvalidField("return_char_limit", "%d is out of bounds", t.Limit).WithHint("give 1 to %d", brig.MaxToolText)
	case len(t.State) > 0 && !json.Valid(t.State):
		return nil, brig.InvalidField("agent_state", "it is not JSON").WithHint("give the agent's state as JSON")
	}
	if t.Timeout == 0 {
		t.Timeout = min(toolTimeout, v.limitRange.MaxTimeout)
	}
	var err error
	if t.Timeout, err = v.limitRange.FillTimeout("timeout_ms", t.Timeout); err != nil {
		return nil, err
	}
	if err := brig.CheckEnv("env_vars", t.Env); err != nil {
		return nil, err
	}
	if err := errors.Join(tool.CheckPython("pip_requirements", t.Python), tool.CheckNode("npm_requirements", t.Node)); err != nil {
		return nil, err
	}
	s, err := schemaOf(&t)
	if err != nil {
		return nil, err
	}
	if err := checkFunction(t, s); err != nil {
		return nil, err
	}
	j := &toolJob{tool: t}
	j.request = tool.DriverRequest{Name: t.Name, Source: t.Source, State: t.State, Typed: s != nil, Packages: []string{}, Parameters: []string{}}
	if s != nil && len(s.Parameters) > 0 {
		j.request.Parameters = s.Parameters
	}
	if len(t.Arguments) == 0 {
		t.Arguments = json.RawMessage("{}")
	}
	if j.request.Arguments, err = s.ConvertArguments(t.Arguments); err != nil {
		return nil, err
	}
	return j, ts.applySetup(ctx, v.actor.Tenant, j)
}

// schemaOf parses the schema of a call's arguments. If the call does not name
// its function, schemaOf takes the name from the schemas.
func schemaOf(t *brig.Tool) (*tool.Schema, error) {
	s, err := tool.ParseSchema(t.Schema)
	if err != nil {
		return nil, err
	}
	if s != nil {
		t.Name = cmp.Or(t.Name, s.Name)
	}
	if len(t.ArgumentSchema) == 0 {
		return s, nil
	}
	if s, err = tool.ParseSchema(t.ArgumentSchema); s != nil {
		t.Name = cmp.Or(t.Name, s.Name)
	}
	return s, err
}

// checkFunction checks the name of the function.
func checkFunction(t brig.Tool, s *tool.Schema) error {
	if t.Language == brig.TypeScript && (s == nil || t.Name == "") {
		return brig.InvalidField("json_schema", "a tool in TypeScript needs one that names the function").
			WithHint(`for example {"name":"add","parameters":{"type":"object","properties":{"a":{"type":"number"}}}}`)
	}
	if t.Name != "" && !tool.IsValidName(t.Name) {
		return brig.InvalidField("name", "%q cannot be a function", truncate(t.Name)).WithHint("use letters, digits and _")
	}
	return nil
}

// applySetup finds the setup of a call, and applies it.
func (ts *tools) applySetup(ctx context.Context, tenant string, j *toolJob) error {
	list, err := ts.Store.ToolSetups(ctx, tenant)
	if err != nil {
		return err
	}
	setup := tool.ChooseSetup(tenant, list)
	if j.setup, err = tool.ParseSetup(setup.Kind, setup.Config); err != nil {
		return err
	}
	if j.fingerprint, err = tool.Fingerprint(setup); err != nil {
		return err
	}
	vars := map[string]string{}
	if setup.ID != "" {
		kept, err := ts.Store.ToolVariables(ctx, tenant, setup.ID)
		if err != nil {
			return err
		}
		for _, x := range kept {
			if vars[x.Key], err = ts.unsealVariable(x); err != nil {
				return err
			}
		}
	}
	j.env = tool.MergeEnvironment(vars, j.tool.Env)
	for _, l := range []toolLayer{
		{tool.Layer{Language: brig.Python, Packages: j.setup.Python}, false}, {tool.Layer{Language: brig.TypeScript, Packages: j.setup.Node}, false},
		{tool.Layer{Language: brig.Python, Packages: j.tool.Python}, true}, {tool.Layer{Language: brig.TypeScript, Packages: j.tool.Node}, true},
	} {
		if len(l.Packages) > 0 {
			j.layers = append(j.layers, l)
		}
	}
	parts := []string{}
	for _, l := range j.layers {
		parts = append(parts, l.Digest(""))
	}
	j.key = tool.BoxKey(j.fingerprint, parts...)
	// The tool's own packages take precedence over the setup's.
	for n := len(j.layers) - 1; n >= 0; n-- {
		if j.layers[n].Language == j.tool.Language {
			j.request.Packages = append(j.request.Packages, layerPath(n))
		}
	}
	return nil
}

// compileTool compiles a TypeScript tool to JavaScript. A syntax error is the
// call's result.
func (ts *tools) compileTool(ctx context.Context, j *toolJob) (*brig.ToolResult, error) {
	if j.tool.Language != brig.TypeScript {
		return nil, nil
	}
	js, err := ts.Options.TypeScript.Program(ctx, j.request.Source)
	if syntaxErr, bad := errors.AsType[*interpreter.SyntaxError](err); bad {
		return j.failed(&brig.ProgramError{Name: "SyntaxError", Message: syntaxErr.Message, Traceback: syntaxErr.Traceback("tool.ts")}), nil
	}
	j.request.Source = js
	return nil, err
}

// failed returns the result of a call that failed before its function ran.
func (j *toolJob) failed(err *brig.ProgramError) *brig.ToolResult {
	text := []byte(cmp.Or(err.Traceback, err.Message) + "\n")
	return &brig.ToolResult{
		Name: j.tool.Name, Text: tool.ErrorText(j.tool.Name, err), Error: err, Fingerprint: j.fingerprint, ExitCode: 1,
		Stderr: brig.Output{Head: text, Total: int64(len(text))},
	}
}
