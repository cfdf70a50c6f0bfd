package workspace_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/workspace"
)

// forge writes a manifest and a record that references it to the store, like
// an attacker with write access.
func forge(t *testing.T, o arena, id, manifest string) {
	t.Helper()
	sum := sha256.Sum256([]byte(manifest))
	digest := hex.EncodeToString(sum[:])
	record, err := json.Marshal(map[string]any{"Number": 1, "Manifest": digest, "Digest": workspace.DigestOf(manifest)})
	if err != nil {
		t.Fatal(err)
	}
	for key, data := range map[string]string{
		"t/acme/blobs/" + digest[:2] + "/" + digest: manifest, "t/acme/versions/" + id + "/00000001": string(record),
	} {
		if err := o.Put(t.Context(), key, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
}

const hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"

// manifestLine returns the line of a file in a forged manifest.
func manifestLine(path string) string {
	return `{"path":` + path + `,"type":"file","mode":420,"size":5,"sha256":"` + hello + `"}` + "\n"
}

// TestForgedManifestsAreRejected checks that the store does not trust a stored manifest.
func TestForgedManifestsAreRejected(t *testing.T) {
	runOnBoth(t, func(t *testing.T, o arena) {
		ctx, s := t.Context(), workspace.New(o, nil)
		w, err := s.Create(ctx, "acme", "data")
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Put(ctx, "t/acme/blobs/2c/"+hello, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		const dir = `{"path":"d","type":"directory","mode":493}` + "\n"
		for what, manifest := range map[string]string{
			"parent":               manifestLine(`"../x"`),
			"parent inside":        dir + manifestLine(`"d/../../x"`),
			"parent, not clean":    dir + manifestLine(`"d/../x"`),
			"absolute":             manifestLine(`"/etc/x"`),
			"itself":               manifestLine(`"."`),
			"nothing":              manifestLine(`""`),
			"twice a slash":        dir + manifestLine(`"d//x"`),
			"a dot":                manifestLine(`"./x"`),
			"a slash at the end":   manifestLine(`"x/"`),
			"NUL":                  manifestLine(`"x\u0000y"`),
			"too long":             manifestLine(`"` + strings.Repeat("x", 5000) + `"`),
			"in base64":            `{"path_b64":"Li4veA==","type":"file","mode":420,"size":5,"sha256":"` + hello + `"}` + "\n",
			"twice":                manifestLine(`"x"`) + manifestLine(`"x"`),
			"through a link":       `{"path":"d","type":"symlink","mode":511,"target":"/etc"}` + "\n" + manifestLine(`"d/x"`),
			"through a file":       manifestLine(`"d"`) + manifestLine(`"d/x"`),
			"in no directory":      manifestLine(`"d/x"`),
			"a device":             `{"path":"x","type":"device","mode":420}` + "\n",
			"setuid":               strings.Replace(manifestLine(`"x"`), "420", "2541", 1),
			"negative size":        strings.Replace(manifestLine(`"x"`), `"size":5`, `"size":-5`, 1),
			"huge":                 strings.Replace(manifestLine(`"x"`), `"size":5`, `"size":99999999999999`, 1),
			"a digest that climbs": strings.Replace(manifestLine(`"x"`), hello, "../../rival/blobs/2c/"+hello[:44], 1),
			"no digest":            strings.Replace(manifestLine(`"x"`), hello, "", 1),
			"an empty link":        `{"path":"x","type":"symlink","mode":511}` + "\n",
			"another size":         strings.Replace(manifestLine(`"x"`), `"size":5`, `"size":4`, 1),
			"a larger size":        strings.Replace(manifestLine(`"x"`), `"size":5`, `"size":6`, 1),
			"no such content":      strings.Replace(manifestLine(`"x"`), "2cf2", "2cf3", 1),
			"not JSON":             "x",
			"unknown":              `{"path":"x","type":"file","mode":420,"extra":1}` + "\n",
		} {
			forge(t, o, w.ID, manifest)
			got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "data", 1))
			if brig.KindOf(err) != brig.FailedPrecondition {
				t.Errorf("%s: %v, %v", what, got, err)
			}
			attack.RecordCase("FS-07", t.Name()+", a manifest with "+what, brig.KindOf(err) != brig.FailedPrecondition)
		}
		// The control: forge works, because a valid manifest passes.
		forge(t, o, w.ID, dir+manifestLine(`"d/x"`)+`{"path":"e","type":"symlink","mode":511,"target":"../../etc"}`+"\n")
		if got, err := unpack(ctx, s, "acme", resolveUse(t, s, "acme", "data", 1)); err != nil || !isEqualTree(got, tree{"d/": "", "d/x": "hello", "e": "-> ../../etc"}) {
			t.Errorf("honest: %v, %v", got, err)
		}
	})
}

// TestForgedManifestsEscapeUnchecked is the control: without the checks, a program that
// writes the files of a forged manifest writes outside the root.
func TestForgedManifestsEscapeUnchecked(t *testing.T) {
	for _, manifest := range []string{manifestLine(`"../x"`), manifestLine(`"d/../../x"`)} {
		var e struct{ Path string }
		if err := json.Unmarshal([]byte(manifest), &e); err != nil {
			t.Fatal(err)
		}
		outside := t.TempDir()
		root := filepath.Join(outside, "root")
		if err := os.MkdirAll(filepath.Join(root, "d"), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(root+"/"+e.Path, []byte("hello"), 0o600)
		_, err2 := os.Stat(filepath.Join(outside, "x"))
		if err != nil || err2 != nil {
			t.Errorf("%s: %v, %v", e.Path, err, err2)
		}
		attack.RecordMutant("FS-07", "a manifest with "+e.Path, "the look at paths", err == nil && err2 == nil)
	}
}

// TestTamperedObjectsAreNotRead checks that a version cannot be read if one of its
// objects was modified in the store.
func TestTamperedObjectsAreNotRead(t *testing.T) {
	runOnBoth(t, func(t *testing.T, o arena) {
		ctx, s := t.Context(), workspace.New(o, nil)
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		if _, err := commit(ctx, s, "acme", "sb1", resolveUse(t, s, "acme", "data", 0), tree{"a": "one", "b": "two"}); err != nil {
			t.Fatal(err)
		}
		use := resolveUse(t, s, "acme", "data", 0)
		tampered := 0
		for _, key := range append(listKeys(t, o, "t/acme/blobs/"), listKeys(t, o, "t/acme/versions/")...) {
			file := filepath.Join(o.files, filepath.FromSlash(key))
			was, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, now := range []string{string(was[:len(was)-1]), "x" + string(was[1:]), string(was) + "x", ""} {
				if err := os.WriteFile(file, []byte(now), 0o600); err != nil {
					t.Fatal(err)
				}
				got, err := unpack(ctx, s, "acme", use)
				if err == nil {
					t.Errorf("%s as %.40q: %v", key, now, got)
				}
				attack.RecordCase("FS-07", fmt.Sprintf("%s, %s changed, of %d bytes", t.Name(), key, len(now)), err == nil)
				tampered++
			}
			if err := os.WriteFile(file, was, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := unpack(ctx, s, "acme", use); err != nil || tampered < 16 {
			t.Errorf("untampered: %v; %d were", err, tampered)
		}
	})
}

// FuzzManifest checks that every accepted manifest describes a valid tree.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifestLine(`"x"`)))
	f.Add([]byte(`{"path":"d","type":"directory","mode":493}` + "\n" + manifestLine(`"d/x"`)))
	f.Add([]byte(manifestLine(`"../x"`)))
	f.Add([]byte(`{"path_b64":"/w==","type":"symlink","mode":511,"target":"/"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		paths, err := workspace.PathsOf(b)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, p := range paths {
			if p == "" || p[0] == '/' || strings.Contains("/"+p+"/", "/../") || strings.Contains(p, "\x00") || strings.Contains("/"+p+"/", "//") {
				t.Fatalf("%q passes", p)
			}
			if i := strings.LastIndexByte(p, '/'); i > 0 && !seen[p[:i]] {
				t.Fatalf("%q comes before its directory", p)
			}
			if seen[p] {
				t.Fatalf("%q is there twice", p)
			}
			seen[p] = true
		}
	})
}
