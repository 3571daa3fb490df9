// SPDX-License-Identifier: Apache-2.0

package noun

import "testing"

func TestNounsAgreeWithTheirNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0 rows", 1: "1 row", 2: "2 rows"} {
		if got := Count(n, "row"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
