package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/builder"
)

// template is the origin of a sandbox: a template of the Service, a template that the tenant has
// built, or an image that is used by its own name.
type template struct {
	id, name, image string
	created         time.Time
	recipe          *brig.Template      // nil for an image
	imageMissing    bool                // the image does not exist, or does not exist yet
	built           *brig.BuiltTemplate // a template that the tenant has built; nil for others
	ref             string              // the reference by which find found the template
}

// templates serves the templates and finds the template that a request names.
type templates struct {
	*env
	snapshots *snapshots
	recipes   map[string]brig.Template // by name
	started   time.Time
}

func newTemplates(e *env, sn *snapshots) *templates {
	ts := &templates{env: e, snapshots: sn, recipes: map[string]brig.Template{}, started: time.Now().UTC()}
	for _, t := range e.Templates {
		ts.recipes[t.Name] = t.Fill()
	}
	return ts
}

// defaultTag is the tag of a reference without a tag. Templates of the Service have no other tag.
const defaultTag = builder.DefaultTag

func errNoTemplate(ref string) *brig.Error {
	return brig.Errorf(brig.NotFound, "template '%s' not found", ref)
}

// name returns a reference without its tag.
func (ts *templates) name(ref string) string {
	if _, ok := ts.recipes[ref]; ok {
		return ref
	}
	return strings.TrimSuffix(ref, ":"+defaultTag)
}

// withoutNamespace returns a reference without the tenant's name before it. E2B's namespace of a
// template is its team. Other namespaces remain, so that no template has the name.
func withoutNamespace(ctx context.Context, ref string) string {
	namespace, name, ok := strings.Cut(ref, "/")
	if ok && namespace != "" && namespace == brig.ActorFrom(ctx).Tenant {
		return name
	}
	return ref
}

// findID returns the ID of the template that ref names. It returns ref without its tag if there is no
// such template.
func (ts *templates) findID(ctx context.Context, ref string) (string, error) {
	id, err := ts.findLocalID(ctx, ref)
	if name := withoutNamespace(ctx, ref); err == nil && id == ts.name(ref) && name != ref {
		return ts.findLocalID(ctx, name)
	}
	return id, err
}

func (ts *templates) findLocalID(ctx context.Context, ref string) (string, error) {
	name := ts.name(ref)
	if _, ok := ts.recipes[name]; ok || ts.Builder == nil {
		return name, nil
	}
	built, err := ts.Builder.Template(ctx, name)
	if brig.KindOf(err) == brig.NotFound {
		return name, nil
	}
	if err != nil {
		return "", err
	}
	return built.ID, nil
}

// find returns the template of the Service with the given name, or else the template that the tenant
// has built, or else the image with that name. The name may begin with the tenant's name, as a
// namespace.
func (ts *templates) find(ctx context.Context, ref string) (template, error) {
	t, err := ts.findLocal(ctx, ref)
	t.ref = ref
	if name := withoutNamespace(ctx, ref); brig.KindOf(err) == brig.NotFound && name != ref {
		if local, localErr := ts.findLocal(ctx, name); localErr == nil {
			local.ref = name
			return local, nil
		}
	}
	return t, err
}

func (ts *templates) findLocal(ctx context.Context, ref string) (template, error) {
	name := ts.name(ref)
	if recipe, ok := ts.recipes[name]; ok {
		return ts.resolve(ctx, recipe)
	}
	base, tag, tagged := strings.Cut(name, ":")
	if _, ok := ts.recipes[base]; ok && tagged {
		return template{}, brig.Errorf(brig.NotFound, "tag '%s' does not exist for template '%s'", tag, base)
	}
	if ts.Builder != nil {
		built, err := ts.Builder.Template(ctx, ref)
		if err == nil {
			return template{id: built.ID, name: built.Name, created: built.Created, built: built}, nil
		}
		if brig.KindOf(err) != brig.NotFound {
			return template{}, err
		}
	}
	if !brig.ValidName(name) {
		return template{}, errNoTemplate(ref)
	}
	t := template{id: name, name: name}
	found, err := ts.findImage(ctx, &t, name)
	if err == nil && !found {
		err = errNoTemplate(ref)
	}
	return t, err
}

// resolve returns a template of the Service with its current image.
func (ts *templates) resolve(ctx context.Context, recipe brig.Template) (template, error) {
	t := template{id: recipe.Name, name: recipe.Name, recipe: &recipe}
	for _, image := range []string{recipe.Image, recipe.StandIn} {
		if image == "" {
			continue
		}
		if found, err := ts.findImage(ctx, &t, image); found || err != nil {
			return t, err
		}
	}
	if len(recipe.Packages) == 0 {
		return t, errNoTemplate(recipe.Name)
	}
	t.image, t.created, t.imageMissing = recipe.Image, ts.started, true // the image can be built
	return t, nil
}

// findImage sets the fields of t that depend on its image, and reports whether
// the image exists.
func (ts *templates) findImage(ctx context.Context, t *template, image string) (bool, error) {
	img, err := ts.Service.GetImage(ctx, image)
	if brig.KindOf(err) == brig.NotFound || err == nil && img == nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	t.image, t.created = image, img.Created.UTC()
	if img.Created.IsZero() {
		t.created = ts.started // the host image has no creation time
	}
	return true, nil
}

// listedTemplate is a template in a list.
type listedTemplate struct {
	TemplateID    string     `json:"templateID"`
	BuildID       string     `json:"buildID"`
	BuildStatus   string     `json:"buildStatus"`
	BuildCount    int        `json:"buildCount"`
	CPUCount      int        `json:"cpuCount"`
	MemoryMB      int64      `json:"memoryMB"`
	DiskSizeMB    int64      `json:"diskSizeMB"`
	Public        bool       `json:"public"`
	Names         []string   `json:"names"`
	Aliases       []string   `json:"aliases"`
	CreatedAt     time.Time  `json:"createdAt"`
	UpdatedAt     time.Time  `json:"updatedAt"`
	CreatedBy     *struct{}  `json:"createdBy"`
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
	SpawnCount    int64      `json:"spawnCount"`
	EnvdVersion   string     `json:"envdVersion"`
}

func (ts *templates) describe(t template) listedTemplate {
	l := ts.limits(t)
	return listedTemplate{
		TemplateID: t.name, BuildID: buildID(t), BuildStatus: "ready", BuildCount: 1,
		CPUCount: cpus(l), MemoryMB: l.Memory / brig.MiB, DiskSizeMB: l.Disk / brig.MiB, Public: true,
		Names: []string{t.name}, Aliases: []string{t.name}, CreatedAt: t.created, UpdatedAt: t.created, EnvdVersion: envdVersion,
	}
}

// limits returns the limits of a template's sandboxes.
func (ts *templates) limits(t template) brig.Limits {
	if t.recipe == nil {
		return ts.LimitRange.Default
	}
	l, err := ts.LimitRange.Fill(t.recipe.Limits)
	if err != nil { // the request to create a sandbox returns the error
		return ts.LimitRange.Default
	}
	return l
}

// buildID returns a UUID that remains the same while the template uses the same
// image.
func buildID(t template) string {
	sum := sha256.Sum256([]byte(t.name + "\n" + t.image))
	h := hex.EncodeToString(sum[:16])
	return strings.Join([]string{h[:8], h[8:12], "5" + h[13:16], "a" + h[17:20], h[20:]}, "-")
}

func (ts *templates) list(w http.ResponseWriter, r *http.Request) error {
	out := []listedTemplate{}
	for _, name := range slices.Sorted(maps.Keys(ts.recipes)) {
		t, err := ts.find(r.Context(), name)
		if t.imageMissing || brig.KindOf(err) == brig.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		out = append(out, ts.describe(t))
	}
	if ts.Builder != nil {
		built, err := ts.Builder.List(r.Context())
		if err != nil {
			return err
		}
		newest, err := ts.Builder.NewestBuilds(r.Context())
		if err != nil {
			return err
		}
		for _, t := range built {
			out = append(out, describeBuilt(t, newest[t.ID]))
		}
	}
	ts.write(w, r, http.StatusOK, out)
	return nil
}

// getAlias reports whether a template exists.
func (ts *templates) getAlias(w http.ResponseWriter, r *http.Request) error {
	t, err := ts.find(r.Context(), param(r, "alias"))
	if err != nil {
		return err
	}
	ts.write(w, r, http.StatusOK, struct {
		TemplateID string `json:"templateID"`
		Public     bool   `json:"public"`
	}{t.id, t.built == nil})
	return nil
}

func (ts *templates) get(w http.ResponseWriter, r *http.Request) error {
	t, err := ts.find(r.Context(), param(r, "template"))
	if err != nil {
		return err
	}
	if t.built != nil {
		all, err := ts.Builder.Builds(r.Context(), t.built)
		if err != nil {
			return err
		}
		ts.write(w, r, http.StatusOK, withBuilds(describeBuilt(t.built, nil), describeBuilds(all)))
		return nil
	}
	l := ts.describe(t)
	ts.write(w, r, http.StatusOK, withBuilds(l, []templateBuild{{
		BuildID: l.BuildID, Status: l.BuildStatus, CreatedAt: l.CreatedAt, UpdatedAt: l.UpdatedAt, FinishedAt: &l.UpdatedAt,
		CPUCount: l.CPUCount, MemoryMB: l.MemoryMB, DiskSizeMB: l.DiskSizeMB, EnvdVersion: l.EnvdVersion,
	}}))
	return nil
}

// remove removes a template that the tenant has built, or a snapshot, which has the same route. A
// caller that may not remove templates does not learn whether one exists.
func (ts *templates) remove(w http.ResponseWriter, r *http.Request) error {
	ref := param(r, "template")
	err := httpapi.CheckCall(r.Context(), ts.Service, "", brig.OpRemoveTemplate)
	if err == nil {
		var t template
		if t, err = ts.find(r.Context(), ref); err == nil && t.built != nil {
			if err := ts.Builder.Remove(r.Context(), t.ref); err != nil {
				return err
			}
			writeEmpty(w)
			return nil
		}
		if err == nil {
			return errUnsupported("removing a template of the server's configuration")
		}
		if brig.KindOf(err) != brig.NotFound {
			return err
		}
	}
	s, findErr := ts.snapshots.find(r.Context(), ref)
	if findErr != nil {
		return findErr
	}
	if s == nil {
		return err
	}
	if err := ts.Service.Remove(r.Context(), string(s.ID)); err != nil {
		return err
	}
	writeEmpty(w)
	return nil
}

// update changes a template, of which only the visibility can change in E2B. A template of the
// configuration is public, and one that a tenant has built is not. A request that changes nothing
// succeeds. The response of the second version of the route has the names.
func (ts *templates) update(version int) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in struct {
			Public *bool `json:"public"`
		}
		if err := read(w, r, &in); err != nil {
			return err
		}
		t, err := ts.find(r.Context(), param(r, "template"))
		if err != nil {
			return err
		}
		switch {
		case in.Public == nil || *in.Public == (t.built == nil):
		case t.built != nil:
			return brig.InvalidField("public", "a template belongs to the tenant that built it, and other tenants cannot use it").
				WithHint("build it in the other tenant, or add it to the server's configuration")
		default:
			return brig.InvalidField("public", "the template belongs to the server's configuration, and all tenants can use it")
		}
		if version == 1 {
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusOK)
			return nil
		}
		ts.write(w, r, http.StatusOK, struct {
			Names []string `json:"names"`
		}{[]string{t.name}})
		return nil
	}
}
