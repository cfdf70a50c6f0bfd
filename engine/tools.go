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

// ToolOptions are how tools are run.
type ToolOptions struct {
	// Image is what boxes are made from whose setup names no template. Default
	// brig.HostImage.
	Image string
	// Egress is where tools may connect to. Default nowhere.
	Egress brig.Egress
	// Layers keeps packages that were installed. Without it none can be.
	Layers *tool.Shelf
	// Index is where packages come from, and PackageEgress where they may be
	// fetched from.
	Index         tool.Index
	PackageEgress brig.Egress
}

// toolTimeout is how long a tool may take that does not say.
const toolTimeout = 3 * time.Minute

// toolJob is a call of a tool, translated into what a box does.
type toolJob struct {
	tool        brig.Tool
	says        tool.Setup
	fingerprint string
	key         string // of its boxes
	env         map[string]string
	order       tool.Order
	layers      []toolLayer
}

// toolLayer is a set of packages, and who asked for them.
type toolLayer struct {
	tool.Layer
	own bool // the tool itself; otherwise the setup
}

// RunTool implements brig.Service.
func (e *Engine) RunTool(ctx context.Context, t brig.Tool) (_ *brig.ToolResult, err error) {
	v, err := e.enter(ctx, brig.OpRunTool, "", func(v *visit) {
		v.sayCode(cmp.Or(t.Language, brig.Python), t.Source)
		v.say(brig.DetailName, clip(t.Name))
	})
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	j, err := e.planTool(ctx, v, t)
	if err != nil {
		return nil, err
	}
	if res, err := e.compileTool(ctx, j); res != nil || err != nil {
		return res, err
	}
	if e.screens(v) {
		if err := e.screenSource(ctx, v, j.tool.Language, j.order.Source); err != nil {
			return nil, err
		}
	}
	turn, err := v.account.begin(nil)
	if err != nil {
		return nil, err
	}
	defer turn.end()
	ctx, overTime := context.WithCancelCause(ctx)
	defer overTime(nil)
	turn.endsBy(overTime)
	b, failed, err := e.enterBox(ctx, v, j)
	if err != nil {
		return nil, turn.verdict(err)
	}
	if failed != nil { // it has no packages to run with
		v.ended(0, 1, false, false, true)
		return j.failed(failed), nil
	}
	res, sound, err := e.callTool(ctx, v, b, j)
	b.rest()
	e.leaveBox(ctx, b.box, sound)
	if err != nil {
		return nil, turn.verdict(err)
	}
	v.ended(res.Duration, res.ExitCode, res.TimedOut, false, res.Error != nil)
	return res, nil
}

// planTool checks a call and finds out how it is to be made.
func (e *Engine) planTool(ctx context.Context, v *visit, t brig.Tool) (*toolJob, error) {
	t.Language = cmp.Or(t.Language, brig.Python)
	t.Limit = cmp.Or(t.Limit, brig.DefaultToolText)
	switch {
	case t.Language != brig.Python && t.Language != brig.TypeScript:
		return nil, brig.InvalidField("source_type", "tools are not written in %q", clip(string(t.Language))).WithHint("use python or typescript")
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
		t.Timeout = min(toolTimeout, v.bounds.MaxTimeout)
	}
	var err error
	if t.Timeout, err = v.bounds.FillTimeout("timeout_ms", t.Timeout); err != nil {
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
	j.order = tool.Order{Name: t.Name, Source: t.Source, State: t.State, Typed: s != nil, Packages: []string{}, Parameters: []string{}}
	if s != nil && len(s.Parameters) > 0 {
		j.order.Parameters = s.Parameters
	}
	if len(t.Arguments) == 0 {
		t.Arguments = json.RawMessage("{}")
	}
	if j.order.Arguments, err = s.Arguments(t.Arguments); err != nil {
		return nil, err
	}
	return j, e.underSetup(ctx, v.actor.Tenant, j)
}

// schemaOf reads the schema of a call's arguments, and gives the call the name
// that its schemas have for the function if it has none.
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

// checkFunction checks which function is meant.
func checkFunction(t brig.Tool, s *tool.Schema) error {
	if t.Language == brig.TypeScript && (s == nil || t.Name == "") {
		return brig.InvalidField("json_schema", "a tool in TypeScript needs one that names the function").
			WithHint(`for example {"name":"add","parameters":{"type":"object","properties":{"a":{"type":"number"}}}}`)
	}
	if t.Name != "" && !tool.ValidName(t.Name) {
		return brig.InvalidField("name", "%q cannot be a function", clip(t.Name)).WithHint("use letters, digits and _")
	}
	return nil
}

// underSetup finds the setup of a call, and what of it holds.
func (e *Engine) underSetup(ctx context.Context, tenant string, j *toolJob) error {
	list, err := e.Store.ToolSetups(ctx, tenant)
	if err != nil {
		return err
	}
	setup := tool.Choose(tenant, list)
	if j.says, err = tool.Read(setup.Kind, setup.Config); err != nil {
		return err
	}
	if j.fingerprint, err = tool.Fingerprint(setup); err != nil {
		return err
	}
	vars := map[string]string{}
	if setup.ID != "" {
		kept, err := e.Store.ToolVariables(ctx, tenant, setup.ID)
		if err != nil {
			return err
		}
		for _, x := range kept {
			if vars[x.Key], err = e.unsealVariable(x); err != nil {
				return err
			}
		}
	}
	j.env = tool.Environment(vars, j.tool.Env)
	for _, l := range []toolLayer{
		{tool.Layer{Language: brig.Python, Packages: j.says.Python}, false}, {tool.Layer{Language: brig.TypeScript, Packages: j.says.Node}, false},
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
	// The tool's own win over the setup's.
	for n := len(j.layers) - 1; n >= 0; n-- {
		if j.layers[n].Language == j.tool.Language {
			j.order.Packages = append(j.order.Packages, layerPath(n))
		}
	}
	return nil
}

// compileTool makes JavaScript of a tool in TypeScript. What is wrong with the
// source is the result.
func (e *Engine) compileTool(ctx context.Context, j *toolJob) (*brig.ToolResult, error) {
	if j.tool.Language != brig.TypeScript {
		return nil, nil
	}
	js, err := e.Options.TypeScript.Program(ctx, j.order.Source)
	if wrong, bad := errors.AsType[*interpreter.SyntaxError](err); bad {
		return j.failed(&brig.ProgramError{Name: "SyntaxError", Message: wrong.Message, Traceback: wrong.Traceback("tool.ts")}), nil
	}
	j.order.Source = js
	return nil, err
}

// failed is the result of a call that did not get as far as its function.
func (j *toolJob) failed(err *brig.ProgramError) *brig.ToolResult {
	said := []byte(cmp.Or(err.Traceback, err.Message) + "\n")
	return &brig.ToolResult{
		Name: j.tool.Name, Text: tool.ErrorText(j.tool.Name, err), Error: err, Fingerprint: j.fingerprint, ExitCode: 1,
		Stderr: brig.Output{Head: said, Total: int64(len(said))},
	}
}
