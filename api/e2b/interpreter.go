package e2b

import (
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// home is where code runs unless it asks for another place.
const home = "/home/user"

// maxCell bounds the body of a request to the code interpreter.
const maxCell = 32 << 20

// codeContext is a context as E2B's clients know it.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// interpreter serves port 49999 of a sandbox. Its errors are text: clients
// show them as they are.
func (d *Door) interpreter(w http.ResponseWriter, r *http.Request, s *brig.Sandbox) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	token := r.Header.Get(headerToken)
	execute := executes(r)
	// Clients show the token where code runs, and not always elsewhere.
	if (token != "" || execute) && !equal(token, d.token(string(s.ID), d.sourceIn(r))) {
		d.fail(w, r, errNoToken())
		return
	}
	if token != "" {
		door.AllowBody(w, r)
	}
	var err error
	switch is := func(method string, length int) bool { return r.Method == method && len(path) == length }; {
	case path[0] == "health" && is(http.MethodGet, 1):
		d.write(w, r, http.StatusOK, "OK")
	case execute && is(http.MethodPost, 1):
		err = d.execute(w, r, s)
	case path[0] == "health" && len(path) == 1, execute:
		err = errMethod()
	case path[0] != "contexts":
		err = brig.Errorf(brig.NotFound, "Not Found")
	case is(http.MethodGet, 1):
		err = d.listContexts(w, r, s)
	case is(http.MethodPost, 1):
		err = d.createContext(w, r, s)
	case is(http.MethodDelete, 2):
		err = d.removeContext(w, r, s, path[1])
	case is(http.MethodPost, 3) && path[2] == "restart":
		err = d.restartContext(w, r, s, path[1])
	case len(path) > 3 || len(path) == 3 && path[2] != "restart":
		err = brig.Errorf(brig.NotFound, "Not Found")
	default:
		err = errMethod()
	}
	if err != nil {
		d.failCode(w, r, s, err)
	}
}

// executes reports whether r has the code interpreter run something.
func executes(r *http.Request) bool { return strings.Trim(r.URL.Path, "/") == "execute" }

func errNoToken() error {
	return brig.Errorf(brig.Unauthenticated, "unauthorized access, please provide a valid access token")
}

func errMethod() error {
	return door.WithStatus(http.StatusMethodNotAllowed, brig.Errorf(brig.InvalidArgument, "Method Not Allowed"))
}

// failCode answers with err as text, and as for any sandbox that is not there
// if that is the reason.
func (d *Door) failCode(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, err error) {
	if d.hasEnded(r, s, err) {
		d.gone(w, r, target{id: string(s.ID), port: portCode})
		return
	}
	p := asProblem(err)
	if a, ok := w.(*answer); ok && a.begun {
		door.Abort(w)
		return
	}
	if brig.KindOf(err) != brig.InvalidArgument {
		door.Log(r, err)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(p.Code)
	if _, err := io.WriteString(w, p.Message); err != nil {
		d.Log.DebugContext(r.Context(), "e2b: answer", "error", err)
	}
}

// hasEnded reports whether err is because s has ended.
func (d *Door) hasEnded(r *http.Request, s *brig.Sandbox, err error) bool {
	switch brig.KindOf(err) {
	case brig.NotFound, brig.FailedPrecondition, brig.ConnectionFailed, brig.Internal:
		now, err := d.lookUp(r.Context(), string(s.ID))
		return err == nil && now == nil
	}
	return false
}

// errStatus gives an error the status that E2B's own server answers with.
func errStatus(status int, err error) error {
	return door.WithStatus(status, brig.AsError(err))
}

func (d *Door) listContexts(w http.ResponseWriter, r *http.Request, s *brig.Sandbox) error {
	all, err := d.Service.Contexts(r.Context(), string(s.ID))
	if err != nil {
		return err
	}
	out := []codeContext{}
	// E2B has these two from the beginning; here they are made when used.
	for _, l := range []brig.Language{brig.Python, brig.JavaScript} {
		out = append(out, codeContext{ID: defaultPrefix + string(l), Language: string(l), Cwd: home})
	}
	for _, c := range all {
		switch l := c.Spec.Language; {
		case strings.HasPrefix(c.ID, defaultPrefix):
			// That of another door, in another directory.
		case !isDefault(c):
			out = append(out, codeContext{ID: c.ID, Language: string(l), Cwd: c.Spec.Dir})
		case l != brig.Python && l != brig.JavaScript:
			out = append(out, codeContext{ID: defaultPrefix + string(l), Language: string(l), Cwd: c.Spec.Dir})
		}
	}
	d.write(w, r, http.StatusOK, out)
	return nil
}

func (d *Door) createContext(w http.ResponseWriter, r *http.Request, s *brig.Sandbox) error {
	var in struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}
	if err := readCell(w, r, &in); err != nil {
		return err
	}
	l, err := language(in.Language)
	if err != nil {
		return err
	}
	if !path.IsAbs(in.Cwd) {
		in.Cwd = path.Join(home, in.Cwd)
	}
	spec := brig.ContextSpec{Language: l, Dir: in.Cwd, Env: map[string]string{envID: string(s.ID)}}
	c, err := d.Service.CreateContext(r.Context(), string(s.ID), spec)
	if e := brig.AsError(err); e != nil && e.Field == "cwd" {
		// E2B makes a context in a directory that is not there.
		if _, made := d.Service.Files(string(s.ID)).MakeDir(r.Context(), brig.Path{Name: in.Cwd, User: "user"}); made == nil {
			c, err = d.Service.CreateContext(r.Context(), string(s.ID), spec)
		}
	}
	if brig.KindOf(err) == brig.InvalidArgument {
		return errStatus(http.StatusInternalServerError, err)
	}
	if err != nil {
		return err
	}
	d.write(w, r, http.StatusOK, codeContext{ID: c.ID, Language: string(c.Spec.Language), Cwd: c.Spec.Dir})
	return nil
}

func (d *Door) removeContext(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, id string) error {
	return d.withContext(w, r, s, id, func(real string) error {
		return d.Service.RemoveContext(r.Context(), string(s.ID), real)
	})
}

func (d *Door) restartContext(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, id string) error {
	return d.withContext(w, r, s, id, func(real string) error {
		_, err := d.Service.RestartContext(r.Context(), string(s.ID), real)
		return err
	})
}

// withContext does something to a context. To a default one that has not been
// used yet there is nothing to do.
func (d *Door) withContext(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, id string, do func(real string) error) error {
	real := id
	if l, ok := strings.CutPrefix(id, defaultPrefix); ok {
		var err error
		if real, err = d.findDefault(r.Context(), s, brig.Language(l)); err != nil {
			return err
		}
	}
	if real == "" && id != defaultPrefix+string(brig.Python) && id != defaultPrefix+string(brig.JavaScript) {
		return errNoContext(id)
	}
	if real != "" {
		err := do(real)
		if brig.KindOf(err) == brig.NotFound && !d.hasEnded(r, s, err) {
			return errNoContext(id)
		}
		if err != nil {
			return err
		}
	}
	d.write(w, r, http.StatusOK, nil)
	return nil
}

func errNoContext(id string) error {
	return brig.Errorf(brig.NotFound, "Context %s not found", strings.ToValidUTF8(id[:min(len(id), 80)], ""))
}

// language is the one that a client means. E2B's server fails where it knows
// of none.
func language(s string) (brig.Language, error) {
	if s == "" {
		return brig.Python, nil
	}
	l, err := brig.ParseContextLanguage(strings.ToLower(s))
	if err != nil {
		return "", errStatus(http.StatusInternalServerError, err)
	}
	return l, nil
}

// readCell is read for the code interpreter, whose code may be long.
func readCell(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCell))
	if err != nil {
		return door.BodyError(err)
	}
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return door.WithStatus(http.StatusUnprocessableEntity, brig.Errorf(brig.InvalidArgument, "the body does not fit this request").Because(err))
	}
	return nil
}
