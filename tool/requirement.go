package tool

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// maxPackages is how many packages a setup or a tool may need.
const maxPackages = 100

var (
	pipForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}(\[[A-Za-z0-9,._-]{1,128}\])? ?((===|==|<=|>=|!=|~=|<|>) ?[A-Za-z0-9.*+!_-]{1,64}(, ?(===|==|<=|>=|!=|~=|<|>) ?[A-Za-z0-9.*+!_-]{1,64}){0,7})?$`)
	npmForm = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]{0,127}/)?[a-z0-9][a-z0-9._-]{0,127}(@[A-Za-z0-9.^~*+_-]{1,64})?$`)
)

// CheckPython names the first requirement that pip must not be given: no
// option, no path and no address, since an index has what tools may need.
func CheckPython(field string, list []string) error {
	return check(field, list, pipForm, "cowsay, or cowsay==6.1")
}

// CheckNode is CheckPython for npm.
func CheckNode(field string, list []string) error {
	return check(field, list, npmForm, "lodash, or lodash@4.17.21")
}

func check(field string, list []string, form *regexp.Regexp, example string) error {
	if len(list) > maxPackages {
		return brig.InvalidField(field, "%d packages are too many", len(list)).WithHint("give at most %d", maxPackages)
	}
	for i, r := range list {
		if !form.MatchString(r) {
			return brig.InvalidField(fmt.Sprintf("%s[%d]", field, i), "%q is no requirement", brig.Clip(r, 80)).WithHint("for example %s", example)
		}
	}
	return nil
}

// InstallError is what is told of packages that cannot be installed: the
// tool's own, or those of its setup. The words are those that Letta's clients
// look for.
func InstallError(installer string, packages []string, tool string, own bool, said string) string {
	whose := "sandbox"
	if own {
		whose = "tool"
	}
	return fmt.Sprintf("Failed to install %s %s requirement '%s' for tool '%s' in E2B sandbox. This may be due to package version incompatibility. "+
		"Consider updating the package version or removing the version constraint. Error: %s",
		whose, installer, strings.Join(packages, " "), tool, said)
}

// Asked are the words of a cell that pip is given to install, in commands that
// a line of the cell is.
func Asked(cell string) (out []string) {
	for _, m := range pipLine.FindAllStringSubmatch(strings.ReplaceAll(cell, "\\\n", " "), -1) {
		for _, word := range pipWord.FindAllString(m[1], -1) {
			out = append(out, strings.Trim(word, `"'`))
		}
	}
	return out
}

var (
	pipLine = regexp.MustCompile(`(?m)^[ \t]*[%!]{0,2}[ \t]*(?:python3? -m )?pip3?[ \t]+install[ \t](.*)$`)
	pipWord = regexp.MustCompile(`"[^"]*"|'[^']*'|[^ \t"']+`)
)

// Merge adds a requirement of pip to others: in the place of one for the same
// package, if there is one. What is no requirement, or one too many, is left
// out.
func Merge(list []string, r string) []string {
	if !pipForm.MatchString(r) {
		return list
	}
	list = slices.Clone(list)
	if i := slices.IndexFunc(list, func(old string) bool { return packageName(old) == packageName(r) }); i >= 0 {
		list[i] = r
	} else if len(list) < maxPackages {
		list = append(list, r)
	}
	return list
}

// packageName is the name of the package that a requirement is of, as indexes
// write it.
func packageName(requirement string) string {
	if i := strings.IndexAny(requirement, "[ =<>!~"); i >= 0 {
		requirement = requirement[:i]
	}
	return separators.ReplaceAllString(strings.ToLower(requirement), "-")
}

var separators = regexp.MustCompile(`[-_.]+`)
