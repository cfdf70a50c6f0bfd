package e2b

import (
	"io"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/internal/exactjson"
)

// home is the default working directory of code.
const home = "/home/user"

// maxCodeRequest limits the body of a request to the code interpreter, in bytes.
const maxCodeRequest = 32 << 20

// interpreter serves the code interpreter of a sandbox: code and contexts.
type interpreter struct {
	*env
	tokens            *tokens
	finder            *finder
	keepaliveInterval time.Duration // interval of keepalive events on a silent stream
	flushDelay        time.Duration // how long output is buffered to combine it with later output of its stream
}

// codeContext is a context in E2B's format.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// serve serves port 49999 of a sandbox. It sends errors as text, because
// clients show them unchanged.
func (i *interpreter) serve(w http.ResponseWriter, r *http.Request, s *brig.Sandbox) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	execute := executes(r)
	proven := i.tokens.hasToken(r, string(s.ID), i.tokens.sourceIn(r))
	open := i.Unsecured && s.Spec.Labels[labelOpen] != ""
	if !proven && (needsToken(r) && !open || r.Header.Get(headerToken) != "") {
		i.fail(w, r, errNoToken())
		return
	}
	if err := checkJSONBody(r, proven); err != nil {
		i.failCode(w, r, s, err)
		return
	}
	if proven {
		httpapi.AllowBody(r)
	}
	var err error
	switch is := func(method string, length int) bool { return r.Method == method && len(path) == length }; {
	case path[0] == "health" && is(http.MethodGet, 1):
		i.write(w, r, http.StatusOK, "OK")
	case execute && is(http.MethodPost, 1):
		if err = httpapi.Check(r, i.Service, string(s.ID), brig.OpRunCode); err == nil {
			err = i.execute(w, r, s)
		}
	case path[0] == "health" && len(path) == 1, execute:
		err = errMethod()
	case path[0] != "contexts":
		err = brig.Errorf(brig.NotFound, "Not Found")
	case is(http.MethodGet, 1):
		err = i.listContexts(w, r, s)
	case is(http.MethodPost, 1):
		if err = httpapi.Check(r, i.Service, string(s.ID), brig.OpCreateContext); err == nil {
			err = i.createContext(w, r, s)
		}
	case is(http.MethodDelete, 2):
		err = i.removeContext(w, r, s, path[1])
	case is(http.MethodPost, 3) && path[2] == "restart":
		err = i.restartContext(w, r, s, path[1])
	case len(path) > 3 || len(path) == 3 && path[2] != "restart":
		err = brig.Errorf(brig.NotFound, "Not Found")
	default:
		err = errMethod()
	}
	if err != nil {
		i.failCode(w, r, s, err)
	}
}

// executes reports whether r runs code.
func executes(r *http.Request) bool { return strings.Trim(r.URL.Path, "/") == "execute" }

// needsToken reports whether a request to port 49999 needs a token of its
// sandbox. Only the health check does not need one.
func needsToken(r *http.Request) bool { return strings.Trim(r.URL.Path, "/") != "health" }

// hasToken reports whether r has a sandbox token that is sufficient for its
// request to the interpreter. Clients send the access token to run code. For
// contexts they send only the traffic token.
func (k *tokens) hasToken(r *http.Request, id, source string) bool {
	access, traffic := r.Header.Get(headerToken), r.Header.Get(headerTraffic)
	switch {
	case access != "":
		return equalSecrets(access, k.token(id, source))
	case executes(r):
		return false
	}
	return traffic != "" && equalSecrets(traffic, k.trafficToken(id, source))
}

// checkJSONBody rejects a body that a page of another site can send without a
// preflight, which is a body without a JSON content type. A program with a
// token may omit the content type.
func checkJSONBody(r *http.Request, proven bool) error {
	if proven && r.Header.Get("Content-Type") == "" {
		return nil
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.ContentLength == 0 {
		return nil
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return httpapi.WithStatus(http.StatusUnsupportedMediaType, brig.Errorf(brig.InvalidArgument, "the body must be application/json"))
	}
	return nil
}

func errNoToken() error {
	return brig.Errorf(brig.Unauthenticated, "unauthorized access, please provide a valid access token")
}

func errMethod() error {
	return httpapi.WithStatus(http.StatusMethodNotAllowed, brig.Errorf(brig.InvalidArgument, "Method Not Allowed"))
}

// failCode responds with err as text. If the sandbox has ended, the response is
// the same as for a sandbox that does not exist.
func (i *interpreter) failCode(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, err error) {
	if a, ok := w.(*answer); ok && a.begun {
		httpapi.Abort(w)
		return
	}
	if i.finder.hasEnded(r, s, err) {
		i.writeGone(w, r, target{id: string(s.ID), port: portCode})
		return
	}
	p := toProblem(err)
	if brig.KindOf(err) != brig.InvalidArgument {
		httpapi.Log(r, err)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(p.Code)
	if _, err := io.WriteString(w, p.Message); err != nil {
		i.Log.DebugContext(r.Context(), "e2b: answer", "error", err)
	}
}

// hasEnded reports whether s has ended and whether this caused err.
func (f *finder) hasEnded(r *http.Request, s *brig.Sandbox, err error) bool {
	switch brig.KindOf(err) {
	case brig.NotFound, brig.FailedPrecondition, brig.ConnectionFailed, brig.Unavailable, brig.Internal:
		now, err := f.lookUp(r.Context(), string(s.ID))
		return err == nil && (now == nil || now.State == brig.Paused)
	}
	return false
}

// errStatus returns err with the status that E2B's own server uses.
func errStatus(status int, err error) error {
	return httpapi.WithStatus(status, brig.AsError(err))
}

func (i *interpreter) listContexts(w http.ResponseWriter, r *http.Request, s *brig.Sandbox) error {
	all, err := i.Service.Contexts(r.Context(), string(s.ID))
	if err != nil {
		return err
	}
	out := []codeContext{}
	// E2B creates these two contexts when a sandbox starts. This API creates
	// them on first use.
	for _, l := range []brig.Language{brig.Python, brig.JavaScript} {
		out = append(out, codeContext{ID: defaultPrefix + string(l), Language: string(l), Cwd: home})
	}
	for _, c := range all {
		switch l := c.Spec.Language; {
		case strings.HasPrefix(c.ID, defaultPrefix):
			// This is the default context of another API, in another directory.
		case !isDefault(c):
			out = append(out, codeContext{ID: c.ID, Language: string(l), Cwd: c.Spec.Dir})
		case l != brig.Python && l != brig.JavaScript:
			out = append(out, codeContext{ID: defaultPrefix + string(l), Language: string(l), Cwd: c.Spec.Dir})
		}
	}
	i.write(w, r, http.StatusOK, out)
	return nil
}

func (i *interpreter) createContext(w http.ResponseWriter, r *http.Request, s *brig.Sandbox) error {
	var in struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}
	if err := readCodeRequest(w, r, &in); err != nil {
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
	c, err := i.Service.CreateContext(r.Context(), string(s.ID), spec)
	if e := brig.AsError(err); e != nil && e.Field == "cwd" {
		// E2B creates the directory of a context if it does not exist.
		if _, made := i.Service.Files(string(s.ID)).MakeDir(r.Context(), brig.Path{Name: in.Cwd, User: "user"}); made == nil {
			c, err = i.Service.CreateContext(r.Context(), string(s.ID), spec)
		}
	}
	if brig.KindOf(err) == brig.InvalidArgument {
		return errStatus(http.StatusInternalServerError, err)
	}
	if err != nil {
		return err
	}
	i.write(w, r, http.StatusOK, codeContext{ID: c.ID, Language: string(c.Spec.Language), Cwd: c.Spec.Dir})
	return nil
}

func (i *interpreter) removeContext(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, id string) error {
	return i.withContext(w, r, s, id, func(real string) error {
		return i.Service.RemoveContext(r.Context(), string(s.ID), real)
	})
}

func (i *interpreter) restartContext(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, id string) error {
	return i.withContext(w, r, s, id, func(real string) error {
		_, err := i.Service.RestartContext(r.Context(), string(s.ID), real)
		return err
	})
}

// withContext applies do to a context. A default context that has not been used
// yet does not exist, so withContext succeeds without calling do.
func (i *interpreter) withContext(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, id string, do func(real string) error) error {
	real := id
	if l, ok := strings.CutPrefix(id, defaultPrefix); ok {
		var err error
		if real, err = i.findDefault(r.Context(), s, brig.Language(l)); err != nil {
			return err
		}
	}
	if real == "" && id != defaultPrefix+string(brig.Python) && id != defaultPrefix+string(brig.JavaScript) {
		return errNoContext(id)
	}
	if real != "" {
		err := do(real)
		if brig.KindOf(err) == brig.NotFound && !i.finder.hasEnded(r, s, err) {
			return errNoContext(id)
		}
		if err != nil {
			return err
		}
	}
	i.write(w, r, http.StatusOK, nil)
	return nil
}

func errNoContext(id string) error {
	return brig.Errorf(brig.NotFound, "Context %s not found", strings.ToValidUTF8(id[:min(len(id), 80)], ""))
}

// language returns the language of a request. Like E2B's server, it responds
// with 500 to an unknown language.
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

// readCodeRequest is like read, with the larger limit of the code interpreter.
func readCodeRequest(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := httpapi.ReadDocument(w, r, maxCodeRequest)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return nil
	}
	if err := exactjson.Unmarshal(body, v); err != nil {
		return httpapi.WithStatus(http.StatusUnprocessableEntity, brig.Errorf(brig.InvalidArgument, "the body does not match the request").Because(err))
	}
	return nil
}
