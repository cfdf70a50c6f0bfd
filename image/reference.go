package image

import (
	"regexp"
	"runtime"
	"strings"

	"github.com/brig-run/brig"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// These patterns match the parts of a reference that are allowed. The library also accepts, for
// example, "a/../b", which would become part of a URL.
var (
	repositoryForm = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$`)
	registryForm   = regexp.MustCompile(`^(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?$`)
)

// reference names an image in a registry by a tag or by a digest.
type reference struct{ name.Reference }

// parseReference parses a reference in docker's syntax.
func parseReference(s string, opts ...name.Option) (reference, error) {
	bad := func(err error) error {
		return brig.InvalidField("ref", "%.80q does not name an image of a registry", s).
			WithHint("for example python:3.11-slim or registry.example/owner/name@sha256:...").Because(err)
	}
	if len(s) > 512 {
		return reference{}, bad(nil)
	}
	r, err := name.ParseReference(s, append(opts, name.WeakValidation)...)
	if err != nil {
		return reference{}, bad(err)
	}
	ref := reference{r}
	repo := r.Context()
	if !repositoryForm.MatchString(repo.RepositoryStr()) || !registryForm.MatchString(repo.RegistryStr()) ||
		strings.ContainsAny(r.Identifier()[:1], ".-") {
		return reference{}, bad(nil)
	}
	if d := ref.digest(); d != "" && checkDigest(d) != nil {
		return reference{}, bad(nil)
	}
	return ref, nil
}

// digest returns the digest of the manifest if the reference has one, or else
// "".
func (r reference) digest() string {
	if d, ok := r.Reference.(name.Digest); ok {
		return d.DigestStr()
	}
	return ""
}

// registry returns the registry's familiar name.
func (r reference) registry() string { return registryName(r.Context().RegistryStr()) }

func registryName(s string) string {
	if s == name.DefaultRegistry {
		return "docker.io"
	}
	return s
}

// repository returns the full familiar name of the repository.
func (r reference) repository() string { return r.registry() + "/" + r.Context().RepositoryStr() }

// shortName returns the short form, under which a pulled image is stored. It
// always has a ":" or an "@", so it never equals a name from an import or a
// build.
func (r reference) shortName() string {
	repo := strings.TrimPrefix(r.repository(), "docker.io/")
	if r.registry() == "docker.io" {
		repo = strings.TrimPrefix(repo, "library/")
	}
	if d := r.digest(); d != "" {
		return repo + "@" + d
	}
	return repo + ":" + r.Identifier()
}

// find returns the digest of the image that ref names: by image digest, by
// name, by another form of the name, or by a manifest's digest.
func (x *index) find(ref string) string {
	if isDigest(ref) {
		if d := x.Manifests[ref]; d != "" {
			return d
		}
		return ref
	}
	if d := x.Names[ref]; d != "" {
		return d
	}
	r, err := parseReference(ref)
	if err != nil {
		return ""
	}
	if d := x.Names[r.shortName()]; d != "" {
		return d
	}
	return x.Manifests[r.digest()]
}

// nameOf returns the name in the index that ref refers to.
func (x *index) nameOf(ref string) string {
	if _, ok := x.Names[ref]; ok {
		return ref
	}
	if r, err := parseReference(ref); err == nil {
		if _, ok := x.Names[r.shortName()]; ok {
			return r.shortName()
		}
	}
	return ""
}

// thisPlatform returns the platform of this host.
func thisPlatform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// parsePlatform parses, for example, "linux/arm64/v8". The empty string means
// the host's platform.
func parsePlatform(s string) (v1.Platform, error) {
	if s == "" {
		return thisPlatform(), nil
	}
	p, err := v1.ParsePlatform(s)
	if err != nil || p.OS == "" || p.Architecture == "" || len(s) > 80 {
		return v1.Platform{}, brig.InvalidField("platform", "%.80q is not a platform", s).
			WithHint("for example linux/amd64 or linux/arm64/v8").Because(err)
	}
	return *p, nil
}
