// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/lab/nstest"
)

func TestServiceAccountFiles(t *testing.T) {
	w := newWorld(t)
	nstest.Must(t, w.Store().ServeAccounts([]byte("certificate")))
	got := w.run("robot", "cd /var/run/secrets/kubernetes.io/serviceaccount; cat ca.crt namespace; echo; cat token", "")
	before, token, _ := strings.Cut(got, "\n")
	user, err := w.Store().CheckToken(token)
	if before != "certificatedefault" || err != nil || user != "system:serviceaccount:default:default" {
		t.Errorf("%q, user %q, %v", got, user, err)
	}
}
