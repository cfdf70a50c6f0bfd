package image

import (
	"bytes"
	"slices"
	"testing"

	"github.com/brig-run/brig"
)

// TestAliasResolvesToTarget checks that an alias resolves to its target and is reported in
// the result. An image of the same name takes precedence, and removing an alias
// keeps the image.
func TestAliasResolvesToTarget(t *testing.T) {
	t.Parallel()
	s := newArena(t).store
	ctx := t.Context()
	load := func(name, text string) *brig.Image {
		t.Helper()
		img, err := s.Import(ctx, name, bytes.NewReader(archiveOf(t, text)), nil)
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	base := load("base", "base")
	if _, err := s.Resolve(ctx, "python:3.11-slim"); brig.KindOf(err) != brig.NotFound {
		t.Fatalf("before: %v", err)
	}
	if i, err := s.Tag(ctx, "base", "docker.io/library/python:3.11-slim"); err != nil || i.Digest != base.Digest || i.Alias != "python:3.11-slim" {
		t.Fatalf("%+v, %v", i, err)
	}
	if i, err := s.Tag(ctx, "python:3.11-slim", "further"); err != nil || i.Digest != base.Digest {
		t.Fatalf("an alias of an alias: %+v, %v", i, err)
	}
	for ref, alias := range map[string]string{"python:3.11-slim": "python:3.11-slim", "library/python:3.11-slim": "python:3.11-slim", "further": "further", "base": "", base.Digest: ""} {
		i, err := s.Resolve(ctx, ref)
		if err != nil || i.Digest != base.Digest || i.Alias != alias || !slices.Equal(i.Names, []string{"base", "further", "python:3.11-slim"}) {
			t.Errorf("%s: %+v, %v", ref, i, err)
		}
	}
	for _, wrong := range [][2]string{{"none", "x"}, {"base", "host"}, {"base", base.Digest}, {"base", "base"}, {"base", "../x"}, {"base", "a@" + base.Digest}} {
		if i, err := s.Tag(ctx, wrong[0], wrong[1]); err == nil {
			t.Errorf("%v: %+v", wrong, i)
		}
	}
	// The target may change its content, and an image with the alias's name takes
	// precedence.
	own := load("further", "other")
	if i, err := s.Resolve(ctx, "further"); err != nil || i.Digest != own.Digest || i.Alias != "" {
		t.Errorf("an image of its own: %+v, %v", i, err)
	}
	if err := s.Remove(ctx, "further"); err != nil {
		t.Fatal(err)
	}
	if i, err := s.Resolve(ctx, "further"); err != nil || i.Digest != base.Digest {
		t.Errorf("after that is gone: %+v, %v", i, err)
	}
	for _, alias := range []string{"further", "python:3.11-slim"} {
		if err := s.Remove(ctx, alias); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resolve(ctx, alias); brig.KindOf(err) != brig.NotFound {
			t.Errorf("%s after its removal: %v", alias, err)
		}
	}
	if i, err := s.Resolve(ctx, "base"); err != nil || !slices.Equal(i.Names, []string{"base"}) {
		t.Errorf("the image itself: %+v, %v", i, err)
	}
	// An alias does not keep its image alive.
	if _, err := s.Tag(ctx, "base", "left"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(ctx, "base"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(ctx, "left"); brig.KindOf(err) != brig.NotFound {
		t.Errorf("an alias of nothing: %v", err)
	}
}

// The sources of packages that an image keeps contain no credentials.
func TestSourcesWithCredentialsAreLeftOut(t *testing.T) {
	for uri, want := range map[string]bool{
		"http://deb.example/debian": true, "https://mirror.example/pub/debian-security/": true, "https://deb.example/ubuntu-ports": true,
		"https://user:pass@deb.example/debian": false, "https://deb.example/debian?key=x": false, "file:///srv/debian": false, "debian": false,
		"https://dl.example/Ab3dEf6hIj9k/org/repo/deb/debian": false,
	} {
		if got := isPublicURI(uri); got != want {
			t.Errorf("%s: %t", uri, got)
		}
	}
}
