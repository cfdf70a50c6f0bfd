package e2b

import (
	"cmp"
	"net/http"
	"slices"
	"time"
)

// assignTags makes tags refer to the build of the target.
func (b *builds) assignTags(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	x, err := b.Builder.Tag(r.Context(), withoutNamespace(r.Context(), in.Target), in.Tags)
	if err != nil {
		return err
	}
	b.write(w, r, http.StatusCreated, struct {
		BuildID string   `json:"buildID"`
		Tags    []string `json:"tags"`
	}{x.ID, in.Tags})
	return nil
}

// removeTags removes tags of a template. Its builds without tags lose their files.
func (b *builds) removeTags(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if err := b.Builder.Untag(r.Context(), withoutNamespace(r.Context(), in.Name), in.Tags); err != nil {
		return err
	}
	writeEmpty(w)
	return nil
}

// templateTag is a tag of a template.
type templateTag struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`
}

// listTags lists the tags of a template, the newest first.
func (b *builds) listTags(w http.ResponseWriter, r *http.Request) error {
	t, err := b.Builder.Template(r.Context(), withoutNamespace(r.Context(), param(r, "template")))
	if err != nil {
		return err
	}
	out := []templateTag{}
	for tag, to := range t.Tags {
		out = append(out, templateTag{tag, to.Build, to.Assigned})
	}
	slices.SortFunc(out, func(x, y templateTag) int {
		return cmp.Or(y.CreatedAt.Compare(x.CreatedAt), cmp.Compare(x.Tag, y.Tag))
	})
	b.write(w, r, http.StatusOK, out)
	return nil
}
