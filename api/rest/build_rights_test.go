package rest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/client"
)

// No caller of the API can give a sandbox the rights of a build: the API has no such field, and the
// client does not send it.
func TestBuildRightsAreNotInAPI(t *testing.T) {
	s := &stub{}
	srv := httptest.NewServer(rest.New(rest.Options{Service: fullStub{s, t}, Keys: keys{}}))
	defer srv.Close()
	for body, want := range map[string]int{
		`{"build_rights":true}`: http.StatusBadRequest, `{"BuildRights":true}`: http.StatusBadRequest, `{}`: http.StatusCreated,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/sandboxes", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s", body, res.Status)
		}
	}
	c := dial(t, client.Options{URL: srv.URL, Key: key})
	if _, err := c.Create(t.Context(), brig.Spec{Name: "x", BuildRights: true}); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.lastArguments().(brig.Spec); !ok || got.BuildRights || got.Name != "x" {
		t.Errorf("the service got %+v", s.lastArguments())
	}
}
