package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

// TestVolumeTokens verifies that a token of a volume opens only the files of this volume, for as long as
// the key that asked for it may use them, and only for what its role allows.
//
//suite:part hostile
func TestVolumeTokens(t *testing.T) {
	needRoot(t)
	s := startServer(t, dataDir(t), "--pool", "0")
	ctx, admin := t.Context(), s.client()
	if _, err := admin.CreateVolume(ctx, "probe", 16*brig.MiB); brig.KindOf(err) == brig.Unimplemented {
		t.Skip(err)
	}
	for _, name := range []string{"acme", "rival"} {
		if _, err := admin.CreateTenant(ctx, brig.Tenant{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	type holder struct {
		*brig.NewKey
		client *client.Client
	}
	key := func(tenant string, role brig.Role, scopes ...string) holder {
		t.Helper()
		k, err := admin.CreateKey(ctx, brig.KeySpec{Name: fmt.Sprint(tenant, role, len(scopes)), Tenant: tenant, Role: role, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(client.Options{URL: s.url, Key: k.Secret})
		if err != nil {
			t.Fatal(err)
		}
		return holder{k, c}
	}
	send := func(method, path, body string, headers ...string) (int, string) {
		t.Helper()
		x := &e2bMatrix{m: &matrix{}, url: s.url}
		r := x.send(t, method, path, body, headers...)
		return r.status, r.body
	}
	token := func(h holder, volume string) string {
		t.Helper()
		var out struct{ Token string }
		status, body := send("GET", "/volumes/"+volume, "", "X-Api-Key", h.Secret)
		if err := json.Unmarshal([]byte(body), &out); status != http.StatusOK || err != nil {
			t.Fatalf("%d %s", status, body)
		}
		return out.Token
	}
	member, viewer, rival := key("acme", brig.Member), key("acme", brig.Viewer), key("rival", brig.Member)
	reader := key("acme", brig.Member, "volume.get", "volume.file.read")
	boxer := key("acme", brig.Member, "sandbox.")
	mounter := key("acme", brig.Member, "sandbox.", "volume.file.read")
	ids := map[string]string{}
	for name, c := range map[string]*client.Client{"one": member.client, "two": member.client, "three": rival.client} {
		v, err := c.CreateVolume(ctx, name, 16*brig.MiB)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = v.ID
		if _, err := c.VolumeFiles(name).Write(ctx, "a", brig.VolumeWrite{}, strings.NewReader(name)); err != nil {
			t.Fatal(err)
		}
	}
	one, rivals := token(member, ids["one"]), token(rival, ids["three"])
	file := func(volume string) string { return "/volumecontent/" + volume + "/file?path=/a" }
	want := func(what, method, path, token string, want int) {
		t.Helper()
		body := ""
		if method == "PUT" {
			body, path = "x", path+"&force=true"
		}
		if got, text := send(method, path, body, "Authorization", "Bearer "+token); got != want {
			t.Errorf("%s: %d %s, want %d", what, got, text, want)
		}
	}
	want("its volume", "GET", file(ids["one"]), one, 200)
	want("its volume, written", "PUT", file(ids["one"]), one, 201)
	want("by the volume's name", "GET", file("one"), one, 401)
	want("another volume of the tenant", "GET", file(ids["two"]), one, 401)
	want("another tenant's volume", "GET", file(ids["three"]), one, 401)
	want("a token of another tenant", "GET", file(ids["one"]), rivals, 401)
	want("another path of the control plane", "GET", "/volumes/"+ids["one"], one, 401)
	want("a changed token", "GET", file(ids["one"]), one[:len(one)-1]+"x", 401)
	want("a key as a token", "GET", file(ids["one"]), member.Secret, 401)
	for _, method := range []string{"GET", "PUT", "DELETE", "PATCH", "POST"} {
		for _, part := range []string{"file", "dir", "path"} {
			path := "/volumecontent/" + ids["one"] + "/" + part + "?path=/a"
			for what, token := range map[string]string{"nothing": "", "a rival's token": rivals} {
				status, text := send(method, path, "", "Authorization", "Bearer "+token)
				if status != http.StatusUnauthorized && status != http.StatusMethodNotAllowed && status != http.StatusNotFound || strings.Contains(text, "one") {
					t.Errorf("%s %s with %s: %d %s", method, part, what, status, text)
				}
			}
		}
	}
	if got := token(viewer, ids["one"]); got != "" {
		want("a viewer's token, to read", "GET", file(ids["one"]), got, 200)
		want("a viewer's token, to write", "PUT", file(ids["one"]), got, 403)
	}
	if got := token(reader, ids["one"]); got != "" {
		want("a reader's token, to read", "GET", file(ids["one"]), got, 200)
		want("a reader's token, to write", "PUT", file(ids["one"]), got, 403)
		want("a reader's token, to list", "GET", "/volumecontent/"+ids["one"]+"/dir?path=/", got, 403)
	}

	// Mounts need the rights to the files.
	for what, c := range map[string]struct {
		by       holder
		name     string
		readOnly bool
		want     brig.Kind
	}{
		"a key for sandboxes":               {boxer, "one", false, brig.PermissionDenied},
		"a key for sandboxes, read-only":    {boxer, "one", true, brig.PermissionDenied},
		"a key that may read":               {mounter, "one", false, brig.PermissionDenied},
		"a key that may read, read-only":    {mounter, "one", true, ""},
		"another tenant's volume":           {rival, "one", false, brig.InvalidArgument},
		"another tenant's volume by its ID": {rival, ids["one"], true, brig.InvalidArgument},
	} {
		box, err := c.by.client.Create(ctx, brig.Spec{TTL: time.Minute, Volumes: []brig.VolumeMount{{Name: c.name, Path: "/volume", ReadOnly: c.readOnly}}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || brig.KindOf(err) != c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			if err := c.by.client.Remove(ctx, box.Spec.Name); err != nil {
				t.Error(err)
			}
		}
	}
	if status, body := send("POST", "/sandboxes", `{"templateID":"base","volumeMounts":[{"name":"one","path":"/volume"}]}`, "X-Api-Key", boxer.Secret); status != http.StatusForbidden {
		t.Errorf("volumeMounts by a key for sandboxes: %d %s", status, body)
	}

	// A volume with the name of a removed volume's ID is not that volume for a token.
	if err := member.client.RemoveVolume(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	want("a removed volume", "GET", file(ids["one"]), one, 404)
	if _, err := member.client.CreateVolume(ctx, ids["one"], 16*brig.MiB); brig.KindOf(err) != brig.InvalidArgument {
		t.Errorf("a volume that has a removed volume's ID as its name: %v", err)
	}
	two := token(member, ids["two"])
	if err := admin.RevokeKey(ctx, member.ID); err != nil {
		t.Fatal(err)
	}
	want("the token of a revoked key", "GET", file(ids["two"]), two, 401)

	// A tenant of the same name gets nothing of a removed one.
	if err := admin.RemoveTenant(ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTenant(ctx, brig.Tenant{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	again := key("acme", brig.Member)
	if list, err := again.client.Volumes(ctx); err != nil || len(list) != 0 {
		t.Errorf("the new tenant has %d volumes, %v", len(list), err)
	}
	if _, err := again.client.GetVolume(ctx, ids["two"]); brig.KindOf(err) != brig.NotFound {
		t.Errorf("a volume of the removed tenant: %v", err)
	}
	want("a token of the removed tenant", "GET", file(ids["two"]), two, 401)
}
