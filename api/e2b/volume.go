package e2b

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// volumes serves the volumes of tenants and their files.
type volumes struct {
	*env
	tokens *tokens
}

// volumeMount is the mount of a volume in a sandbox.
type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

func mountsOf(s *brig.Sandbox) []volumeMount {
	out := []volumeMount{}
	for _, m := range s.Spec.Volumes {
		out = append(out, volumeMount{m.Name, m.Path})
	}
	return out
}

// volumeInfo describes a volume. The token is for calls on its files.
type volumeInfo struct {
	VolumeID string `json:"volumeID"`
	Name     string `json:"name"`
	Token    string `json:"token,omitempty"`
}

// describe returns a volume with its token. An actor that cannot have a token, for example a viewer,
// gets none.
func (x *volumes) describe(ctx context.Context, v *brig.Volume) volumeInfo {
	out := volumeInfo{VolumeID: v.ID, Name: v.Name}
	if source, ok := x.tokens.source(brig.ActorFrom(ctx)); ok && source != "" {
		out.Token = x.tokens.volumeToken(v.ID, source)
	}
	return out
}

// volumeToken returns the token for the files of a volume. Its text has a prefix that no sandbox's ID
// has.
func (k *tokens) volumeToken(id, source string) string {
	return k.restrictedToken("volume/"+id, source)
}

func (x *volumes) create(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name string `json:"name"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	v, err := x.Service.CreateVolume(r.Context(), in.Name, 0)
	if err != nil {
		return err
	}
	x.write(w, r, http.StatusCreated, x.describe(r.Context(), v))
	return nil
}

func (x *volumes) list(w http.ResponseWriter, r *http.Request) error {
	all, err := x.Service.Volumes(r.Context())
	if err != nil {
		return err
	}
	out := []volumeInfo{}
	for _, v := range all {
		out = append(out, volumeInfo{VolumeID: v.ID, Name: v.Name})
	}
	x.write(w, r, http.StatusOK, out)
	return nil
}

func (x *volumes) get(w http.ResponseWriter, r *http.Request) error {
	v, err := x.Service.GetVolume(r.Context(), param(r, "volume"))
	if err != nil {
		return err
	}
	x.write(w, r, http.StatusOK, x.describe(r.Context(), v))
	return nil
}

func (x *volumes) remove(w http.ResponseWriter, r *http.Request) error {
	if err := x.Service.RemoveVolume(r.Context(), param(r, "volume")); err != nil {
		return err
	}
	writeEmpty(w)
	return nil
}

// authenticate checks the token of a call on the files of a volume, and returns the proof of the key
// or grant that asked for it.
func (x *volumes) authenticate(r *http.Request) (httpapi.Proof, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	source := sourceOfToken(token)
	if !strings.EqualFold(scheme, "Bearer") || source == "" || x.Options.KeyActor == nil ||
		!equalSecrets(token, x.tokens.volumeToken(param(r, "volume"), source)) {
		return httpapi.Proof{}, brig.Errorf(brig.Unauthenticated, "the token of the volume is missing or not valid").
			WithHint("connect to the volume to get its token")
	}
	return httpapi.NewProof(r.Context(), source, func(ctx context.Context) (brig.Actor, error) { return x.tokens.actorOf(ctx, source) })
}

// volumeEntry describes a path of a volume.
type volumeEntry struct {
	Name   string    `json:"name"`
	Type   string    `json:"type"`
	Path   string    `json:"path"`
	Size   int64     `json:"size"`
	Mode   uint32    `json:"mode"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	ATime  time.Time `json:"atime"`
	MTime  time.Time `json:"mtime"`
	CTime  time.Time `json:"ctime"`
	Target string    `json:"target,omitempty"`
}

func newVolumeEntry(e *brig.VolumeEntry) volumeEntry {
	kind := string(e.Type)
	if e.Type == brig.OtherFile {
		kind = "unknown"
	}
	return volumeEntry{
		Name: e.Name, Type: kind, Path: e.Path, Size: e.Size, Mode: e.Mode, UID: e.UID, GID: e.GID,
		ATime: e.Accessed, MTime: e.Modified, CTime: e.Changed, Target: e.Target,
	}
}

// contentRoute is a route for the files of a volume.
type contentRoute struct {
	method, pattern string
	op              brig.Op // must be allowed before the body is read
	handle          func(w http.ResponseWriter, r *http.Request, files brig.VolumeFiles, path string) error
}

func (x *volumes) contentRoutes() []contentRoute {
	return []contentRoute{
		{http.MethodGet, "/volumecontent/{volume}/path", brig.OpStatVolume, x.stat},
		{http.MethodPatch, "/volumecontent/{volume}/path", brig.OpSetVolumeAttributes, x.setAttributes},
		{http.MethodDelete, "/volumecontent/{volume}/path", brig.OpUnlinkVolume, x.removePath},
		{http.MethodGet, "/volumecontent/{volume}/dir", brig.OpListVolume, x.listDir},
		{http.MethodPost, "/volumecontent/{volume}/dir", brig.OpMakeVolumeDir, x.makeDir},
		{http.MethodGet, "/volumecontent/{volume}/file", brig.OpReadVolume, x.readFile},
		{http.MethodPut, "/volumecontent/{volume}/file", brig.OpWriteVolume, x.writeFile},
	}
}

// content returns the handler of a route.
func (x *volumes) content(rt contentRoute) http.HandlerFunc {
	keyed := x.keyring.Keyed(x.authenticate, func(w http.ResponseWriter, r *http.Request) error {
		if err := httpapi.Check(r, x.Service, "", rt.op); err != nil {
			return err
		}
		path := r.URL.Query().Get("path")
		if path == "" {
			return brig.InvalidField("path", "it is required")
		}
		return rt.handle(w, r, x.Service.VolumeFiles(param(r, "volume")), path)
	}, x.failContent)
	return func(w http.ResponseWriter, r *http.Request) {
		httpapi.RecordRoute(r, "e2b:"+rt.pattern)
		keyed(w, r)
	}
}

// failContent is like fail, but the code of the error is a string, as clients expect here.
func (x *volumes) failContent(w http.ResponseWriter, r *http.Request, err error) {
	if a, ok := w.(*answer); ok && a.begun {
		x.fail(w, r, err)
		return
	}
	e := brig.AsError(err)
	status := httpapi.StatusOf(err)
	switch {
	case e.Kind == brig.FailedPrecondition && e.Field == "path" && r.Method == http.MethodGet:
		status = http.StatusNotFound // there is no such file, or no such directory
	case e.Kind == brig.FailedPrecondition && e.Field != "path" && r.Method != http.MethodGet:
		status = http.StatusInsufficientStorage // the volume is full
	}
	httpapi.Log(r, err)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(httpapi.RetryAfter(err)))
	}
	x.write(w, r, status, struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{strconv.Itoa(status), toProblem(err).Message})
}

// writeEntry responds with an entry.
func (x *volumes) writeEntry(w http.ResponseWriter, r *http.Request, status int, e *brig.VolumeEntry, err error) error {
	if err != nil {
		return err
	}
	x.write(w, r, status, newVolumeEntry(e))
	return nil
}

func (x *volumes) stat(w http.ResponseWriter, r *http.Request, files brig.VolumeFiles, path string) error {
	e, err := files.Stat(r.Context(), path)
	return x.writeEntry(w, r, http.StatusOK, e, err)
}

func (x *volumes) listDir(w http.ResponseWriter, r *http.Request, files brig.VolumeFiles, path string) error {
	depth := 1
	if text := r.URL.Query().Get("depth"); text != "" {
		var err error
		if depth, err = strconv.Atoi(text); err != nil {
			return brig.InvalidField("depth", "it is not a number")
		}
	}
	entries, err := files.List(r.Context(), path, depth)
	if err != nil {
		return err
	}
	out := []volumeEntry{}
	for _, e := range entries {
		out = append(out, newVolumeEntry(e))
	}
	x.write(w, r, http.StatusOK, out)
	return nil
}

func (x *volumes) readFile(w http.ResponseWriter, r *http.Request, files brig.VolumeFiles, path string) error {
	e, body, err := files.Read(r.Context(), path)
	if err != nil {
		return err
	}
	defer body.Close()
	w.Header().Set("Content-Type", v1.Octets)
	w.Header().Set("Content-Length", strconv.FormatInt(e.Size, 10))
	w.WriteHeader(http.StatusOK)
	return httpapi.SendFile(w, r, body, e.Size)
}

func (x *volumes) writeFile(w http.ResponseWriter, r *http.Request, files brig.VolumeFiles, path string) error {
	o, err := volumeWrite(r)
	if err != nil {
		return err
	}
	httpapi.AllowLongBody(r)
	e, err := files.Write(r.Context(), path, o, r.Body)
	return x.writeEntry(w, r, http.StatusCreated, e, err)
}

func (x *volumes) makeDir(w http.ResponseWriter, r *http.Request, files brig.VolumeFiles, path string) error {
	o, err := volumeWrite(r)
	if err != nil {
		return err
	}
	e, err := files.MakeDir(r.Context(), path, o)
	return x.writeEntry(w, r, http.StatusCreated, e, err)
}

// volumeWrite reads the options of a new path from the query. Numbers are decimal, also the mode.
func volumeWrite(r *http.Request) (o brig.VolumeWrite, err error) {
	q := r.URL.Query()
	for field, to := range map[string]**uint32{"uid": &o.UID, "gid": &o.GID, "mode": &o.Mode} {
		if text := q.Get(field); text != "" {
			if *to, err = v1.ParseVolumeID(field, text); err != nil {
				return o, err
			}
		}
	}
	if text := q.Get("force"); text != "" {
		if o.Force, err = strconv.ParseBool(text); err != nil {
			return o, brig.InvalidField("force", "it is neither true nor false")
		}
	}
	return o, checkMode(o.Mode)
}

func checkMode(mode *uint32) error {
	if mode != nil && *mode > 0o7777 {
		return brig.InvalidField("mode", "%d are no permission bits", *mode)
	}
	return nil
}

func (x *volumes) setAttributes(w http.ResponseWriter, r *http.Request, files brig.VolumeFiles, path string) error {
	var in struct {
		UID  *uint32 `json:"uid"`
		GID  *uint32 `json:"gid"`
		Mode *uint32 `json:"mode"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if err := checkMode(in.Mode); err != nil {
		return err
	}
	e, err := files.SetAttributes(r.Context(), path, brig.VolumeAttributes(in))
	return x.writeEntry(w, r, http.StatusOK, e, err)
}

func (x *volumes) removePath(w http.ResponseWriter, r *http.Request, files brig.VolumeFiles, path string) error {
	if err := files.Remove(r.Context(), path); err != nil {
		return err
	}
	writeEmpty(w)
	return nil
}
