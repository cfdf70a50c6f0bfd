package builder

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/brig-run/brig"
)

// DefaultTag is the tag of a reference without a tag.
const DefaultTag = "default"

const (
	nameLetters = "abcdefghijklmnopqrstuvwxyz0123456789-_"
	tagLetters  = nameLetters + "ABCDEFGHIJKLMNOPQRSTUVWXYZ."
	maxName     = 63
	maxTag      = 128
)

// ParseName splits a reference, "name" or "name:tag". The tag is empty if there is none. As in E2B,
// a name is in lower case.
func ParseName(ref string) (name, tag string, err error) {
	name, tag, tagged := strings.Cut(strings.TrimSpace(ref), ":")
	name = strings.ToLower(name)
	if len(name) == 0 || len(name) > maxName || strings.Trim(name, nameLetters) != "" {
		return "", "", brig.InvalidField("name", "%q is not the name of a template", brig.Clip(name, 80)).
			WithHint("use 1 to %d of a-z, 0-9, - and _, for example web or web:v1", maxName)
	}
	if tagged {
		err = checkTag(tag)
	}
	return name, tag, err
}

func checkTag(tag string) error {
	if len(tag) == 0 || len(tag) > maxTag || strings.Trim(tag, tagLetters) != "" || len(tag) == 36 && uuid.Validate(tag) == nil {
		return brig.InvalidField("tags", "%q is not a tag", brig.Clip(tag, 80)).
			WithHint("use 1 to %d of a-z, A-Z, 0-9, -, _ and ., and not the ID of a build", maxTag)
	}
	return nil
}

// checkTags returns the tags of a build without duplicates. tag is the one in its name.
func checkTags(tag string, more []string) ([]string, error) {
	var out []string
	if tag != "" {
		out = append(out, tag)
	}
	for _, m := range more {
		if err := checkTag(m); err != nil {
			return nil, err
		}
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		out = []string{DefaultTag}
	}
	if len(out) > maxTags {
		return nil, brig.InvalidField("tags", "there are more than %d", maxTags)
	}
	return out, nil
}

func orDefault(tag string) string {
	if tag == "" {
		return DefaultTag
	}
	return tag
}
