// SPDX-License-Identifier: Apache-2.0

package scenarios

import "testing"

// All checks that ids are unique, every scenario is well written and has a row, and every row a scenario.
func TestAll(t *testing.T) {
	if _, err := All(); err != nil {
		t.Error(err)
	}
}
