package gateway
import ("testing";"fmt")
func TestZZ(t *testing.T) {
	s := start(t, setup{policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"delivery":{"rate":2}}]`})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"a"}`)
	c.ask(`{"op":"SUBSCRIBE","topic":"t","group":"b"}`)
	for i := range 2 {
		s.publish(t, "t", fmt.Sprint(i), fmt.Sprint(i))
	}
	for range 4 { // a burst of 2, and 2 a second after that
		f:=c.want("EVENT")
		fmt.Println(f.Group, f.Event.ID)
	}
	s.policies.Swap(snapshot(t, unlimited)) // the bucket is retuned where it is
	for i := range 20 {
		s.publish(t, "t", fmt.Sprintf("more%d", i), fmt.Sprint(i))
	}
	_, b:=s.do(t,"GET","/v1/topics/t/groups/a","")
	fmt.Println(b)
	_, b=s.do(t,"GET","/v1/topics/t/groups/b","")
	fmt.Println(b)
	for range 40 {
		f:=c.want("EVENT")
		fmt.Println(f.Group, f.Event.ID)
	}
}
