package scenarios

import (
	"testing"

	"github.com/viplab/viplab/suite/spec"
)

// Ids are unique and every scenario is well written. Whether they are what the catalogue asks for is tested beside it.
func TestScenariosAreWellWritten(t *testing.T) {
	if _, err := spec.Sort(All()); err != nil {
		t.Error(err)
	}
}
