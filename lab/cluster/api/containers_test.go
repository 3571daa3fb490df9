// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/access"
	"github.com/viplab/viplab/lab/cluster/store"
)

const podPath = "/api/v1/namespaces/default/pods/a1/"

func TestNoContainers(t *testing.T) {
	c := newClient(t, store.Config{}, newNode("n1"), newPod("a1", "web"), newService("web"))
	for _, path := range []string{podPath + "log", podPath + "exec?command=a&stdout=1", podPath + "attach?stdout=1",
		podPath + "portforward", podPath + "proxy/x", "/api/v1/namespaces/default/services/web/proxy/"} {
		c.get(path).says(501, "NotImplemented", "gives no access to the containers")
	}
}

// machine has no programs, but logs, and a web server on every port.
type machine struct {
	access.Containers
	page string
}

func (m machine) Dial(ctx context.Context, _ store.Key, _ uint16) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", m.page)
}

func (machine) Logs(_ context.Context, pod store.Key, container string, o *corev1.PodLogOptions, w io.Writer) error {
	if o.Previous {
		return errors.New("there is no previous container")
	}
	if o.TailLines != nil {
		_, _ = fmt.Fprintf(w, "%s %s %d %v", pod, container, *o.TailLines, o.Timestamps)
	}
	return nil
}

func TestReachContainers(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page" {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<a href="/x">y</a>`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s %s%s", r.Method, r.URL, body, r.Header.Get("Authorization"))
	}))
	defer page.Close()
	unscheduled := newPod("nowhere", "web")
	unscheduled.Spec.NodeName, unscheduled.Spec.NodeSelector = "", map[string]string{"no": "node"}
	c := newClient(t, store.Config{}, newNode("n1"), newPod("a1", "web"), unscheduled)
	c.server.SetContainers(machine{page: page.Listener.Addr().String()})

	for path, want := range map[string]string{
		"proxy/a%2Fb//c/?q=1": "PUT /a%2Fb//c/?q=1 body",
		"proxy/":              "PUT / body",
		"proxy":               "PUT / body",
	} {
		if a := c.do("PUT", podPath+path, "", "body").want(http.StatusTeapot); string(a.body) != want {
			t.Errorf("%s: got %s, want %s", path, a.body, want)
		}
	}
	if a := c.get(podPath + "proxy/page").want(200); string(a.body) != `<a href="`+podPath+`proxy/x">y</a>` {
		t.Errorf("a link of a page: got %s", a.body)
	}
	if a := c.get(podPath + "log?tailLines=3&timestamps=true").want(200); string(a.body) != "default/a1 main 3 true" {
		t.Errorf("got %s", a.body)
	}
	if a := c.get(podPath + "log").want(200); len(a.body) != 0 {
		t.Errorf("got %s", a.body)
	}
	c.get("/api/v1/namespaces/default/pods/nowhere/log?previous=true").want(200)

	for path, message := range map[string]string{ // below podPath, or absolute
		"log?previous=1":      "there is no previous container",
		"log?tailLines=-1":    "tailLines: wants a number",
		"log?sinceTime=today": "sinceTime: wants a time",
		"log?container=other": "container other is not valid for pod a1 (it has: main)",
		"exec?command=ls":     "at least 1 of stdin, stdout, stderr",
		"exec?stdout=1":       "must specify a command",
		"/api/v1/namespaces/default/pods/nowhere/exec?command=ls&stdout=1": "does not have a host assigned",
		"/api/v1/namespaces/default/pods/nowhere/portforward?ports=80":     "does not have a host assigned",
		"/api/v1/namespaces/default/pods/a1:web/proxy/":                    `pod a1 has no port "web"`,
		"exec?command=ls&stdout=1&container=%20":                           "container   is not valid",
	} {
		if path[0] != '/' {
			path = podPath + path
		}
		c.get(path).says(400, metav1.StatusReasonBadRequest, message)
	}
	c.do("DELETE", podPath+"log", "", "").want(405)
	c.get("/api/v1/namespaces/default/pods/none/log").says(404, metav1.StatusReasonNotFound, `pods "none" not found`)
}
