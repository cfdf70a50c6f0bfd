package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/builder"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
)

// templateOperations are the operations of REST whose path names a built template.
var templateOperations = []string{
	"get-template", "remove-template", "tag-template", "untag-template", "get-template-build", "template-build-log", "cancel-template-build",
}

// withBuilds returns the service of an engine that builds templates.
func withBuilds(t *testing.T, e *engine.Engine, store brig.Store) (brig.Service, brig.TemplateService) {
	t.Helper()
	builds, err := builder.New(t.Context(), builder.Options{Service: engine.BuildService{Engine: e}, Store: store, Dir: t.TempDir(), Actor: e.KeyByID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(builds.Close)
	return builder.Compose(e, builds), builds
}

// acmesDigest is the digest of files that only acme has uploaded. The matrix uploads others as each caller.
var acmesDigest = strings.Repeat("ac", 32)

// buildTemplate builds a template of acme, and returns the parameters of its paths.
func (m *matrix) buildTemplate(t *testing.T, ctx context.Context, builds brig.TemplateService) map[string]string {
	t.Helper()
	b, err := builds.BuildTemplate(ctx, brig.BuildSpec{Name: "acmes-web", Image: "host"})
	if err == nil {
		b, err = builds.FollowTemplateBuild(ctx, "acmes-web", b.ID, 0, func(brig.BuildLine) error { return nil })
	}
	if err == nil {
		err = builds.PutTemplateFiles(ctx, acmesDigest, 1, strings.NewReader("x"))
	}
	if err != nil || b.Status != brig.BuildReady {
		t.Fatal(b, err)
	}
	return map[string]string{"name": "acmes-web", "id": b.ID, "tag": "default"}
}

// checkTemplateFiles verifies that a tenant neither finds nor uses the files and the template of another
// tenant, and that the owner does.
func (m *matrix) checkTemplateFiles(t *testing.T) {
	path, steps := "/v1/template-files/"+acmesDigest, `{"image":"host","steps":[{"type":"copy","digest":"`+acmesDigest+`","source":".","destination":"/"}]}`
	for _, c := range []struct {
		name, who, method, path, body string
		status                        int
		text                          string
	}{
		{"find as the owner", "owner", http.MethodGet, path, "", 200, `{"present":true}`},
		{"find as another", "other admin", http.MethodGet, path, "", 200, `{"present":false}`},
		{"copy as another", "other admin", http.MethodPost, "/v1/templates/web/builds", steps, 400, "were not uploaded"},
		{"base of another", "other admin", http.MethodPost, "/v1/sandboxes", `{"template":"acmes-web"}`, 400, `no template \"acmes-web\"`},
		{"list as another", "other admin", http.MethodGet, "/v1/templates", "", 200, `{"templates":[`},
		{"create as the owner", "owner", http.MethodPost, "/v1/sandboxes", `{"template":"acmes-web"}`, 201, `"state":"running"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			attack.Case(t, "API-01", "template of another tenant: "+c.name)
			got := m.send(t, c.who, c.method, c.path, requestCase{body: c.body}, nil, "")
			if got.status != c.status || !strings.Contains(got.body, c.text) || c.who != "owner" && strings.Contains(got.body, "\"acmes-web\"") {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
}
