// SPDX-License-Identifier: Apache-2.0

package match_test

import (
	"testing"

	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }
