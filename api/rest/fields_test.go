package rest_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/client"
)

// full returns a T in which every field is set, except the fields that are intentionally not
// sent over the wire.
func full[T any](t *testing.T) *T {
	t.Helper()
	v := new(T)
	n := 0
	fill(t, reflect.ValueOf(v).Elem(), &n)
	switch v := any(v).(type) { // Survive does not apply to a main program
	case *brig.Spec:
		v.Command.Survive = false
	case *brig.Sandbox:
		v.Spec.Command.Survive = false
	case *brig.ProcessSpec: // Survive does not apply to a process either
		v.Command.Survive = false
	case *brig.ProcessInfo:
		v.Spec.Command.Survive = false
	}
	return v
}

func fill(t *testing.T, v reflect.Value, n *int) {
	t.Helper()
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(epoch.Add(time.Duration(*n) * time.Second)))
		return
	case time.Duration:
		v.SetInt(int64(*n) * int64(time.Millisecond))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`{"n":1.50}`))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for f, field := range v.Fields() {
			own := v.Type() == reflect.TypeFor[brig.Egress]() && f.Name == "Operator" ||
				v.Type() == reflect.TypeFor[brig.Pause]() && f.Name == "Executions" ||
				v.Type() == reflect.TypeFor[brig.BuiltTemplate]() && (f.Name == "Tenant" || f.Name == "Rev" || f.Name == "Builds" || f.Name == "Removed") || // the server's own
				v.Type() == reflect.TypeFor[brig.TemplateBuild]() && (f.Name == "Tenant" || f.Name == "Rev" || f.Name == "Digest" || f.Name == "Discarded" || f.Name == "Log")
			if !own && f.Name != "Ephemeral" && f.Name != "PausableIfSupported" && f.Name != "Blank" && f.Name != "Held" && f.Name != "BuildRights" && f.Name != "Share" && f.Name != "Draining" { // only the engine sets these fields
				fill(t, field, n)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), n)
		}
	case reflect.Map:
		if v.Type() == reflect.TypeFor[map[string]json.RawMessage]() {
			v.Set(reflect.ValueOf(map[string]json.RawMessage{"k": json.RawMessage(`{"v":[1]}`)}))
			return
		}
		if v.Type().Key().Kind() == reflect.String && v.Type() != reflect.TypeFor[map[string]string]() { // map keys with fixed names
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, k, n)
			fill(t, e, n)
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(k, e)
			return
		}
		v.Set(reflect.ValueOf(map[string]string{"k": "v"}))
	case reflect.String:
		v.SetString(string(rune('a' + *n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(100 + *n))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(uint64(1 + *n))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	default:
		t.Fatalf("no filling for %s", v.Type())
	}
}

type fullStub struct {
	*stub
	t *testing.T
}

func (f fullStub) Get(context.Context, string) (*brig.Sandbox, error) {
	return full[brig.Sandbox](f.t), nil
}
func (f fullStub) GetRun(context.Context, string) (*brig.Outcome, error) {
	return full[brig.Outcome](f.t), nil
}
func (f fullStub) Runs(context.Context, brig.RunOptions) (*brig.RunPage, error) {
	return full[brig.RunPage](f.t), nil
}
func (f fullStub) GetImage(context.Context, string) (*brig.Image, error) {
	return full[brig.Image](f.t), nil
}
func (f fullStub) CreateContext(_ context.Context, _ string, spec brig.ContextSpec) (*brig.CodeContext, error) {
	f.record(spec)
	return full[brig.CodeContext](f.t), nil
}
func (f fullStub) RunCode(_ context.Context, _ string, code brig.Code, on func(brig.CodeEvent) error) (*brig.CodeResult, error) {
	f.record(code)
	return full[brig.CodeResult](f.t), nil
}
func (f fullStub) Templates(context.Context) ([]brig.Template, error) {
	return []brig.Template{fullTemplate(f.t)}, nil
}

// fullTemplate returns a template with values in all fields that the template commands support.
func fullTemplate(t *testing.T) brig.Template {
	out := *full[brig.Template](t)
	for _, c := range []*brig.Command{out.Start, out.Ready} {
		c.Timeout, c.Survive = 0, false
	}
	return out
}

func (f fullStub) Pool(context.Context) ([]brig.PoolClass, error) {
	return []brig.PoolClass{*full[brig.PoolClass](f.t)}, nil
}
func (f fullStub) GetExec(context.Context, string, string) (*brig.Execution, error) {
	return full[brig.Execution](f.t), nil
}

func (f fullStub) Files(string) brig.Files { return fullFiles{t: f.t} }

type fullFiles struct {
	brig.Files
	t *testing.T
}

func (f fullFiles) Stat(context.Context, brig.Path) (*brig.Entry, error) {
	return full[brig.Entry](f.t), nil
}
func (f fullFiles) Watch(_ context.Context, _ brig.Path, _ bool, on func(brig.FileChange) error) error {
	return on(*full[brig.FileChange](f.t))
}
func (f fullStub) Processes(name string) brig.Processes {
	return fullProcesses{f.stub.Processes(name), f.stub, f.t}
}

type fullProcesses struct {
	brig.Processes
	stub *stub
	t    *testing.T
}

func (f fullProcesses) Start(_ context.Context, spec brig.ProcessSpec) (*brig.ProcessInfo, error) {
	f.stub.record(spec)
	return full[brig.ProcessInfo](f.t), nil
}

// TestClientPreservesEveryFileField fails if a type for files or processes has
// a field that the wire types, the API or the client do not have.
func TestClientPreservesEveryFileField(t *testing.T) {
	s := &stub{}
	srv := httptest.NewServer(rest.New(rest.Options{Service: fullStub{s, t}, Keys: keys{}}))
	defer srv.Close()
	c := dial(t, client.Options{URL: srv.URL, Key: key})
	e, err := c.Files("box").Stat(t.Context(), brig.Path{Name: "/x"})
	if want := full[brig.Entry](t); err != nil || !reflect.DeepEqual(e, want) {
		t.Errorf("got %+v, %v, want %+v", e, err, want)
	}
	err = c.Files("box").Watch(t.Context(), brig.Path{Name: "/x"}, false, func(got brig.FileChange) error {
		if want := *full[brig.FileChange](t); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	spec := *full[brig.ProcessSpec](t)
	p, err := c.Processes("box").Start(t.Context(), spec)
	if want := full[brig.ProcessInfo](t); err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, %v, want %+v", p, err, want)
	}
	if !reflect.DeepEqual(s.lastArguments(), spec) {
		t.Errorf("the service got %+v, want %+v", s.lastArguments(), spec)
	}
}

// TestClientPreservesEveryField fails if a domain type has a field that the
// wire types, the API or the client do not have.
func TestClientPreservesEveryField(t *testing.T) {
	s := &stub{}
	srv := httptest.NewServer(rest.New(rest.Options{Service: fullStub{s, t}, Builds: fullTemplates{stubTemplates{s}, t}, Keys: keys{}}))
	defer srv.Close()
	c := dial(t, client.Options{URL: srv.URL, Key: key})
	compare := func(got, want any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
		}
	}
	box, err := c.Get(t.Context(), "x")
	compare(box, full[brig.Sandbox](t), err)
	o, err := c.GetRun(t.Context(), "x")
	compare(o, full[brig.Outcome](t), err)
	page, err := c.Runs(t.Context(), brig.RunOptions{})
	compare(page, full[brig.RunPage](t), err)
	x, err := c.GetExec(t.Context(), "x", "y")
	compare(x, full[brig.Execution](t), err)
	i, err := c.GetImage(t.Context(), "x")
	compare(i, full[brig.Image](t), err)

	contextSpec := full[brig.ContextSpec](t)
	made, err := c.CreateContext(t.Context(), "box", *contextSpec)
	compare(made, full[brig.CodeContext](t), err)
	compare(s.lastArguments(), *contextSpec, nil)
	code := full[brig.Code](t)
	for _, on := range []func(brig.CodeEvent) error{nil, func(brig.CodeEvent) error { return nil }} {
		res, err := c.RunCode(t.Context(), "box", *code, on)
		compare(res, full[brig.CodeResult](t), err)
		compare(s.lastArguments(), *code, nil)
	}
	templates, err := c.Templates(t.Context())
	compare(templates, []brig.Template{fullTemplate(t)}, err)
	details, err := c.GetTemplate(t.Context(), "web")
	compare(details, full[brig.TemplateDetails](t), err)
	build, err := c.GetTemplateBuild(t.Context(), "web", "b1")
	compare(build, fullBuild(t), err)
	wanted := full[brig.BuildSpec](t)
	wanted.Steps[0].Kind, wanted.Steps[1].Kind = brig.BuildRun, brig.BuildCopy
	for i := range wanted.Steps {
		wanted.Steps[i].Digest, wanted.Steps[i].Mode = strings.Repeat("a", 64), "0644"
	}
	wanted.Template = "" // a build has one base
	_, err = c.BuildTemplate(t.Context(), *wanted)
	compare(s.lastArguments(), *wanted, err)
	shelves, err := c.Pool(t.Context())
	compare(shelves, []brig.PoolClass{*full[brig.PoolClass](t)}, err)

	cmd := full[brig.Command](t)
	if _, err := c.Exec(t.Context(), "box", *cmd, brig.IO{}); err != nil {
		t.Error(err)
	}
	compare(s.lastArguments(), *cmd, nil)
	p := full[brig.Program](t)
	p.Language, p.Artifacts = brig.Python, false // only RAGFlow uses artifacts
	if _, err := c.Run(t.Context(), *p, brig.IO{}); err != nil {
		t.Error(err)
	}
	compare(s.lastArguments(), *p, nil)
	b := full[brig.ImageBuild](t)
	if _, err := c.BuildImage(t.Context(), *b, nil); err != nil {
		t.Error(err)
	}
	compare(s.lastArguments(), *b, nil)
	pull := full[brig.ImagePull](t)
	if _, err := c.PullImage(t.Context(), *pull, nil); err != nil {
		t.Error(err)
	}
	compare(s.lastArguments(), *pull, nil)
	spec := full[brig.Spec](t)
	_, _ = c.Create(t.Context(), *spec) // the stub rejects these limits but records the spec
	compare(s.lastArguments(), *spec, nil)
	command := full[brig.Spec](t)
	command.Command.Argv = nil
	_, _ = c.Create(t.Context(), *command)
	compare(s.lastArguments(), *command, nil)
	list := full[brig.ListOptions](t)
	list.States = []brig.State{brig.Running, brig.Ended}
	if _, err := c.List(t.Context(), *list); err != nil {
		t.Error(err)
	}
	compare(s.lastArguments(), *list, nil)
}
