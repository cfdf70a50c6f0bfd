package interpreter
import ("testing";"os";"fmt")
func TestZZ(t *testing.T){ b,_:=os.ReadFile("/tmp/esb/a.ts"); js,err:=TypeScriptCell(string(b)); fmt.Println(js,err)
js,err=TypeScriptCell("let é: string = '😀';\nfoo(a/2,\n  /[/]x/.test(`a\n${1 +\n2}`),\n  b);\nlet a: = 3"); fmt.Println(js,err)
js,err=TypeScript("import fs, {Stats} from 'fs'\ninterface S {\n a:1}\n\nconst é: string = '😀'; \nfoo(a/2,\n  /[/]x/.test(`a\n${1 +\n2}`),\n  b);\n{}\n/x/.test(1)\n// c\nfs.x()"); fmt.Println(js,err)}
