package tool

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// MaxPackages is how many packages a setup, a tool or a step may need.
const MaxPackages = 100

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
	if len(list) > MaxPackages {
		return brig.InvalidField(field, "%d packages are too many", len(list)).WithHint("give at most %d", MaxPackages)
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

// Asked are the requirements that a cell gives pip to install, in commands that a
// line of the cell is. A line in which anything else stands asks for none of them:
// what follows an option may be a file or a folder, and what has another index is
// not what the operator's has by that name.
func Asked(cell string) (out []string) {
	cell = strings.ReplaceAll(strings.ReplaceAll(cell, "\r\n", "\n"), "\\\n", " ")
	for _, m := range pipLine.FindAllStringSubmatch(cell, MaxPackages) {
		for _, name := range requirementsOf(m[1]) {
			if len(out) < MaxPackages && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// requirementsOf are those of one command, after its "install".
func requirementsOf(words string) (out []string) {
	for _, word := range pipWord.FindAllString(words, 2*MaxPackages) {
		switch word = strings.Trim(word, `"'`); {
		case harmless.MatchString(word):
		case pipForm.MatchString(word):
			out = append(out, word)
		default:
			return nil
		}
	}
	return out
}

var (
	pipLine = regexp.MustCompile(`(?m)^[ \t]*[%!]{0,2}[ \t]*(?:(?:\{sys\.executable\}|[\w/.+-]*python[\w.]*)[ \t]+-m[ \t]+)?pip3?[ \t]+install[ \t](.*)$`)
	pipWord = regexp.MustCompile(`"[^"]*"|'[^']*'|[^ \t"']+`)
	// harmless options do not change what is meant by the names beside them. The
	// driver has the same list.
	harmless = regexp.MustCompile(`^(-[qvU]+|--(quiet|verbose|upgrade|user|no-input|no-cache-dir|prefer-binary|break-system-packages` +
		`|disable-pip-version-check|no-warn-script-location|no-python-version-warning|progress-bar=\w+|root-user-action=\w+))$`)
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
	} else if len(list) < MaxPackages {
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
