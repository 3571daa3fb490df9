// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestCalledAs(t *testing.T) {
	for word, want := range map[string]string{
		"viplab": "viplab", "bin/viplab": "bin/viplab", "/opt/viplab-arm64": "/opt/viplab-arm64",
		"/proc/self/exe": "viplab",
	} {
		if got := calledAs(word); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
