// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

func TestPagesOfAKubelet(t *testing.T) {
	c := newClient(t, store.Config{}, newNode("n1"), newNode("n2"), newPod("a1", "web"))
	c.server.SetContainers(machine{})
	const n1 = "/api/v1/nodes/n1"
	pods := into[corev1.PodList](c.get(n1 + "/proxy/pods").want(200))
	if len(pods.Items) != 1 || pods.Items[0].Name != "a1" {
		t.Errorf("got %+v", pods.Items)
	}
	folder := "default_a1_" + string(pods.Items[0].UID)
	for path, want := range map[string]string{
		n1 + "/proxy/healthz":                             "ok",
		n1 + "/proxy/metrics":                             "",
		n1 + "/proxy/logs/":                               `<a href="pods/">`,
		n1 + ":10250/proxy/logs/":                         `<a href="pods/">`,
		n1 + "/proxy/logs/pods/":                          `<a href="` + folder + `/">`,
		n1 + "/proxy/logs/pods/" + folder:                 `<a href="main/">`,
		n1 + "/proxy/logs/pods/" + folder + "/main/":      `<a href="0.log">`,
		n1 + "/proxy/logs/pods/" + folder + "/main/0.log": "",
		"/api/v1/nodes/https:n1:10250/proxy/logs/pods":    folder,
		"/api/v1/nodes/n2/proxy/logs/pods/":               "<pre>",
	} {
		if a := c.get(path).want(200); !strings.Contains(string(a.body), want) {
			t.Errorf("%s: got %s, want %s", path, a.body, want)
		}
	}
	c.get("/api/v1/nodes/n2/proxy/logs/pods/" + folder).want(404)
	c.get(n1 + "/proxy/logs/none").want(404)
	c.get(n1 + "/proxy/none").want(404)
	c.do("POST", n1+"/proxy/logs/", "", "").want(405)
	c.get("/api/v1/nodes/none/proxy/healthz").says(404, metav1.StatusReasonNotFound, `nodes "none" not found`)
	c.get(n1+":80/proxy/").says(503, metav1.StatusReasonServiceUnavailable, "port 80")
}
