// SPDX-License-Identifier: Apache-2.0

package confined

import (
	"slices"
	"strings"
	"testing"
)

func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		variables, files string
		want             Place
		cure             string
	}{
		{"", "/usr", Machine, "sudo"},
		{"GITHUB_ACTIONS", "", Machine, "sudo"}, // the runner itself is a virtual machine
		{"", "/.dockerenv", Container, "--privileged"},
		{"", "/run/.containerenv", Container, "--privileged"},
		{"container", "", Container, "--privileged"},
		{"KUBERNETES_SERVICE_HOST", "", Pod, "securityContext"},
		{"container", "/kind/version", KindNode, "docker exec"},
		{"GITHUB_ACTIONS", "/.dockerenv", GitHub, "options: --privileged"},
		{"GITLAB_CI KUBERNETES_SERVICE_HOST", "", GitLab, "config.toml"},
	} {
		env := func(name string) string {
			if slices.Contains(strings.Fields(c.variables), name) {
				return "set"
			}
			return ""
		}
		exists := func(path string) bool { return slices.Contains(strings.Fields(c.files), path) }
		got := find(env, exists)
		if got != c.want || !strings.Contains(got.Privileges(), c.cure) {
			t.Errorf("%q, %q: %q, %q", c.variables, c.files, got, got.Privileges())
		}
	}
}
