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
)

// template is what a sandbox can be made from: one of the Service's, or an image
// by its own name.
type template struct {
	name, image string
	created     time.Time
	recipe      *brig.Template // nil for an image
	missing     bool           // its image is not there, or not there yet
}

// defaultTag is the tag that a reference without one means. There is no other.
const defaultTag = "default"

func errNoTemplate(ref string) *brig.Error {
	return brig.Errorf(brig.NotFound, "template '%s' not found", ref)
}

// templateName is a reference without its tag.
func (d *Door) templateName(ref string) string {
	if _, ok := d.templates[ref]; ok {
		return ref
	}
	return strings.TrimSuffix(ref, ":"+defaultTag)
}

// findTemplate finds a template by name, or the image of that name.
func (d *Door) findTemplate(ctx context.Context, ref string) (template, error) {
	name := d.templateName(ref)
	if recipe, ok := d.templates[name]; ok {
		return d.ours(ctx, recipe)
	}
	base, tag, tagged := strings.Cut(name, ":")
	if _, ok := d.templates[base]; ok && tagged {
		return template{}, brig.Errorf(brig.NotFound, "tag '%s' does not exist for template '%s'", tag, base)
	}
	if !brig.ValidName(name) {
		return template{}, errNoTemplate(ref)
	}
	t := template{name: name}
	found, err := d.findImage(ctx, &t, name)
	if err == nil && !found {
		err = errNoTemplate(ref)
	}
	return t, err
}

// ours is a template of the Service's, with the image that it means now.
func (d *Door) ours(ctx context.Context, recipe brig.Template) (template, error) {
	t := template{name: recipe.Name, recipe: &recipe}
	for _, image := range []string{recipe.Image, recipe.StandIn} {
		if image == "" {
			continue
		}
		if found, err := d.findImage(ctx, &t, image); found || err != nil {
			return t, err
		}
	}
	if len(recipe.Packages) == 0 {
		return t, errNoTemplate(recipe.Name)
	}
	t.image, t.created, t.missing = recipe.Image, d.started, true // it can be made
	return t, nil
}

// findImage completes t with what an image is, if there is one.
func (d *Door) findImage(ctx context.Context, t *template, image string) (bool, error) {
	img, err := d.Service.GetImage(ctx, image)
	if brig.KindOf(err) == brig.NotFound || err == nil && img == nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	t.image, t.created = image, img.Created.UTC()
	if img.Created.IsZero() {
		t.created = d.started // the machine's own user land has no age
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
	SpawnCount    int        `json:"spawnCount"`
	EnvdVersion   string     `json:"envdVersion"`
}

func (d *Door) listedTemplate(t template) listedTemplate {
	l := d.limits(t)
	return listedTemplate{
		TemplateID: t.name, BuildID: buildID(t), BuildStatus: "ready", BuildCount: 1,
		CPUCount: cpus(l), MemoryMB: l.Memory / brig.MiB, DiskSizeMB: l.Disk / brig.MiB, Public: true,
		Names: []string{t.name}, Aliases: []string{t.name}, CreatedAt: t.created, UpdatedAt: t.created, EnvdVersion: envdVersion,
	}
}

// limits are those of a sandbox that is made of a template.
func (d *Door) limits(t template) brig.Limits {
	if t.recipe == nil {
		return d.Bounds.Default
	}
	l, err := d.Bounds.Fill(t.recipe.Limits)
	if err != nil { // who creates one is told
		return d.Bounds.Default
	}
	return l
}

// buildID is a UUID that stays the same while the template means one image.
func buildID(t template) string {
	sum := sha256.Sum256([]byte(t.name + "\n" + t.image))
	h := hex.EncodeToString(sum[:16])
	return strings.Join([]string{h[:8], h[8:12], "5" + h[13:16], "a" + h[17:20], h[20:]}, "-")
}

func (d *Door) listTemplates(w http.ResponseWriter, r *http.Request) error {
	out := []listedTemplate{}
	for _, name := range slices.Sorted(maps.Keys(d.templates)) {
		t, err := d.findTemplate(r.Context(), name)
		if t.missing || brig.KindOf(err) == brig.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		out = append(out, d.listedTemplate(t))
	}
	d.write(w, r, http.StatusOK, out)
	return nil
}

// alias says whether there is a template.
func (d *Door) alias(w http.ResponseWriter, r *http.Request) error {
	t, err := d.findTemplate(r.Context(), param(r, "alias"))
	if err != nil {
		return err
	}
	d.write(w, r, http.StatusOK, struct {
		TemplateID string `json:"templateID"`
		Public     bool   `json:"public"`
	}{t.name, true})
	return nil
}

// templateBuild is how a template was made.
type templateBuild struct {
	BuildID     string    `json:"buildID"`
	Status      string    `json:"status"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	FinishedAt  time.Time `json:"finishedAt"`
	CPUCount    int       `json:"cpuCount"`
	MemoryMB    int64     `json:"memoryMB"`
	DiskSizeMB  int64     `json:"diskSizeMB"`
	EnvdVersion string    `json:"envdVersion"`
}

func (d *Door) template(w http.ResponseWriter, r *http.Request) error {
	t, err := d.findTemplate(r.Context(), param(r, "template"))
	if err != nil {
		return err
	}
	l := d.listedTemplate(t)
	d.write(w, r, http.StatusOK, struct {
		TemplateID    string          `json:"templateID"`
		Public        bool            `json:"public"`
		Names         []string        `json:"names"`
		Aliases       []string        `json:"aliases"`
		CreatedAt     time.Time       `json:"createdAt"`
		UpdatedAt     time.Time       `json:"updatedAt"`
		LastSpawnedAt *time.Time      `json:"lastSpawnedAt"`
		SpawnCount    int             `json:"spawnCount"`
		Builds        []templateBuild `json:"builds"`
	}{l.TemplateID, l.Public, l.Names, l.Aliases, l.CreatedAt, l.UpdatedAt, nil, 0, []templateBuild{{
		BuildID: l.BuildID, Status: l.BuildStatus, CreatedAt: l.CreatedAt, UpdatedAt: l.UpdatedAt, FinishedAt: l.UpdatedAt,
		CPUCount: l.CPUCount, MemoryMB: l.MemoryMB, DiskSizeMB: l.DiskSizeMB, EnvdVersion: l.EnvdVersion,
	}}})
	return nil
}

// removeTemplate is also how clients remove a snapshot. None was ever there,
// and they are told so.
func (d *Door) removeTemplate(_ http.ResponseWriter, r *http.Request) error {
	if _, err := d.findTemplate(r.Context(), param(r, "template")); err != nil {
		return err
	}
	return errMissing("removing templates")
}

// teams are the one that the key is of. The command line keeps the key that
// it finds there.
func (d *Door) teams(w http.ResponseWriter, r *http.Request) error {
	tenant := brig.ActorFrom(r.Context()).Tenant
	d.write(w, r, http.StatusOK, []struct {
		TeamID    string `json:"teamID"`
		Name      string `json:"name"`
		APIKey    string `json:"apiKey"`
		IsDefault bool   `json:"isDefault"`
	}{{tenant, tenant, keyOf(r), true}})
	return nil
}
